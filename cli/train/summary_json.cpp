#include <psring/cli/train/summary.h>

namespace psring::cli {

namespace {

Json to_json(const StalenessSummary& own) {
  return {{"mean", own.mean()},     {"most", own.most},       {"most_lag", own.most_lag},
          {"updates", own.updates}, {"dropped", own.dropped}, {"histogram", own.bins}};
}

/// Adds bytes and memory: measured, and predicted if there is a prediction.
void add_checks(Json& json, const Summary& summary) {
  for (const ByteCheck& check : summary.bytes) {
    Json entry = {{"role", check.role}, {"direction", check.direction}, {"measured", check.measured}};
    if (check.predicted) entry["predicted"] = *check.predicted;
    json["bytes"].push_back(entry);
  }
  for (const MemoryCheck& check : summary.memory) {
    Json entry = {{"role", check.role}, {"category", check.category}, {"peak", check.peak}};
    if (check.predicted) entry["predicted"] = *check.predicted;
    json["memory"].push_back(entry);
  }
}

void add_system_memory(Json& json, const Summary& summary) {
  const auto count = [&](const char* figure, const std::map<std::string, std::uint64_t>& by_process) {
    for (const auto& [process, peak] : by_process) json["system_memory"][figure][process] = peak;
  };
  count("rss_peak", summary.system_memory.rss);
  count("pss_peak", summary.system_memory.pss);
  if (summary.system_memory.pss_together)
    json["system_memory"]["pss_together_peak"] = *summary.system_memory.pss_together;
}

}  // namespace

Json summary_document(const Summary& summary) {
  Json json = {{"strategy", summary.strategy},
               {"steps", summary.steps},
               {"skipped_steps", summary.skipped_steps},
               {"final_loss", summary.final_loss},
               {"samples_per_second", summary.samples_per_second},
               {"step_s", summary.step_seconds},
               {"step_p10_s", summary.step_p10_seconds},
               {"step_p90_s", summary.step_p90_seconds},
               {"exposed_comm_s", summary.exposed_seconds},
               {"mean_exposed_comm_s", summary.mean_exposed_seconds},
               {"worker_peak_bytes", summary.worker_peak_bytes},
               {"server_peak_bytes", summary.server_peak_bytes}};
  if (summary.test_accuracy) json["test_accuracy"] = *summary.test_accuracy;
  for (const auto& [name, mean] : summary.test_own) json["own"]["test_" + name] = mean;
  if (summary.test_loss) json["test_loss"] = *summary.test_loss;
  if (summary.reads_text()) json["tokens_per_second"] = summary.tokens_per_second;
  if (const std::optional<double> perplexity = summary.test_perplexity()) json["test_perplexity"] = *perplexity;
  if (summary.losses > 0) {
    json["losses"] = summary.losses;
    json["workers"] = summary.workers;
  }
  if (!summary.recovery_seconds.empty()) json["recovery_s"] = summary.recovery_seconds;
  for (const StalenessSummary& worker : summary.staleness) json["staleness"].push_back(to_json(worker));
  if (const auto& pipeline = summary.pipeline)
    json["pipeline"] = {{"stages", pipeline->stages},     {"micro_batches", pipeline->micros},
                        {"schedule", pipeline->schedule}, {"most_in_flight", pipeline->most_in_flight},
                        {"bubble", pipeline->bubble},     {"predicted_bubble", pipeline->predicted}};
  if (summary.predicted_exposed_seconds) json["predicted_exposed_comm_s"] = *summary.predicted_exposed_seconds;
  add_checks(json, summary);
  add_system_memory(json, summary);
  return json;
}

}  // namespace psring::cli
