#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string_view>

#include <psring/cli/compare/repeated_steps.h>
#include <psring/cli/train/summary.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

/// Reads a number, or null, which JSON has in place of NaN.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Json read_report(const fs::path& folder, const std::string& role) {
  const fs::path file = folder / "reports" / (role + ".json");
  std::optional<Json> json = Json::try_parse(read_whole(file));
  if (!json) fail(ErrorKind::data, "{}: not JSON", file.string());
  return std::move(*json);
}

/// Counts the connections that the coordinator and all roles refused.
std::uint64_t refused(const fs::path& folder, const Json& roles) {
  std::uint64_t sum = 0;
  if (fs::exists(folder / "reports" / "coordinator-0.json"))
    sum += read_report(folder, "coordinator-0").value("refused", std::uint64_t{0});
  for (const auto& [role, report] : roles.items()) sum += report.value("refused", std::uint64_t{0});
  return sum;
}

constexpr std::string_view kExchange[] = {"push",       "pull",           "push_pull",  "values",
                                          "all_reduce", "reduce_scatter", "all_gather", "message",
                                          "rows_pull",  "rows",           "rows_push"};
constexpr std::string_view kReplication[] = {"replicate"};

/// Adds up the payload of operations that move tensors. Start-up and verdicts are control, and not counted.
std::uint64_t payload(const Json& report, const std::string& direction,
                      std::span<const std::string_view> operations = kExchange) {
  std::uint64_t sum = 0;
  if (!report.contains("bytes") || !report["bytes"].contains(direction)) return 0;
  for (const auto& [operation, peers] : report["bytes"][direction].items()) {
    if (std::find(operations.begin(), operations.end(), operation) == operations.end()) continue;
    for (const Json& peer : peers) sum += peer.at("payload").get<std::uint64_t>();
  }
  return sum;
}

std::uint64_t booked_peak(const Json& report) {
  std::uint64_t sum = 0;
  for (const auto& [category, entry] : report.at("memory").items())
    if (entry.is_object()) sum += entry.at("peak").get<std::uint64_t>();
  return sum;
}

std::optional<std::uint64_t> predicted(const Json& report, const char* figure, std::uint64_t steps) {
  if (!report.contains("predicted") || !report["predicted"].contains(figure)) return std::nullopt;
  const Json& predicted = report["predicted"];
  return predicted[figure].get<std::uint64_t>() * steps +
         predicted.value(fmt::format("{}_of_run", figure), std::uint64_t{0});
}

/// A worker's prediction of the memory of a server.
Json server_memory(const Json& worker, std::size_t rank) {
  const Json predicted = worker.value("predicted", Json::object());
  if (predicted.contains("each_server_memory")) return predicted["each_server_memory"][rank];
  return predicted.value("server_memory", Json::object());
}

/// Adds the checks of a role's memory. `predicted`: bytes by category.
void add_memory(Summary& summary, const std::string& role, const Json& report, const Json& predicted) {
  for (const auto& [category, entry] : report.at("memory").items()) {
    if (!entry.is_object()) continue;
    MemoryCheck check{role, category, entry.at("peak").get<std::uint64_t>(), std::nullopt};
    if (predicted.contains(category)) check.predicted = predicted[category].get<std::uint64_t>();
    summary.memory.push_back(check);
  }
}

/// Adds a figure of a report; a sum without it is unknown.
void add(std::optional<double>& sum, const Json& report, const char* figure) {
  sum = sum && report.contains(figure) ? std::optional(*sum + report[figure].get<double>()) : std::nullopt;
}

WorkerTimes worker_times(const Json& report) {
  WorkerTimes times{.busy_s = report.at("busy_step_s").at("median").get<double>(),
                    .exposed_s = report.at("exposed_step_s").at("median").get<double>()};
  if (report.contains("processors_used")) times.processors_used = report["processors_used"].get<double>();
  if (!report.contains("run_delay")) return times;
  times.run_delay = report["run_delay"].get<double>();
  times.delay_s = *times.run_delay * report.at("step_s").at("median").get<double>();
  return times;
}

/// Adds the figures of a worker. With backup workers a slow worker makes fewer steps than the others.
void add_worker(Summary& summary, const std::string& role, const Json& report) {
  const auto steps = report.at("steps").get<std::uint64_t>();
  summary.steps = std::max(summary.steps, steps);
  summary.skipped_steps = report.at("skipped_steps").get<std::uint64_t>();
  const auto& step = report.at("step_s");
  if (step.at("median").get<double>() >= summary.step_seconds) {
    summary.step_seconds = step.at("median").get<double>();
    summary.step_p10_seconds = step.at("p10").get<double>();
    summary.step_p90_seconds = step.at("p90").get<double>();
  }
  summary.exposed_seconds = std::max(summary.exposed_seconds, report.at("exposed_step_s").at("median").get<double>());
  summary.mean_exposed_seconds =
      std::max(summary.mean_exposed_seconds,
               report.at("exposed_comm_s").get<double>() / std::max(1.0, report.at("steps").get<double>()));
  if (const Json& predicted = report.at("predicted"); predicted.contains("exposed_comm_s"))
    summary.predicted_exposed_seconds =
        std::max(summary.predicted_exposed_seconds.value_or(0), predicted["exposed_comm_s"].get<double>());
  summary.worker_times.push_back(worker_times(report));
  summary.worker_peak_bytes = std::max(summary.worker_peak_bytes, booked_peak(report));
  summary.bytes.push_back({role, "sent", payload(report, "sent"), predicted(report, "worker_sends", steps)});
  summary.bytes.push_back({role, "received", payload(report, "received"), predicted(report, "worker_receives", steps)});
  // The prediction is of a step: a worker that came too late for every update has made none.
  const Json predicted_memory = report.value("predicted", Json::object()).value("worker_memory", Json::object());
  add_memory(summary, role, report, steps > 0 ? predicted_memory : Json::object());
}

/// Adds a server that lives in a worker's process: the row of that worker counts both roles. The server's bytes come
/// from the steps of the other workers, each of which moves the same.
void add_guest(Summary& summary, const std::string& worker, const Json& roles, const Json& report) {
  std::uint64_t others = 0;
  std::uint64_t steps = 0;
  for (const auto& [role, other] : roles.items())
    if (role.starts_with("worker ") && role != worker) {
      ++others;
      steps += other.at("steps").get<std::uint64_t>();
    }
  const Json& worker_report = roles.at(worker);
  for (ByteCheck& check : summary.bytes) {
    if (check.role != worker) continue;
    const bool sent = check.direction == "sent";
    const char* const figure = sent ? "own_server_sends" : "own_server_receives";
    const auto of_run = predicted(worker_report, figure, 0);
    check.measured += payload(report, check.direction);
    if (!of_run)
      check.predicted.reset();
    else if (check.predicted && others > 0)
      *check.predicted += (*predicted(worker_report, figure, 1) - *of_run) * steps / others + *of_run;
  }
  summary.worker_peak_bytes = std::max(summary.worker_peak_bytes, booked_peak(worker_report) + booked_peak(report));
}

/// Adds a server's counts of each worker's gradients, if it has counted any.
void add_staleness(Summary& summary, const Json& report) {
  const Json& list = report.at("staleness");
  const auto counts = [](const Json& own) {
    return own.at("updates").get<std::uint64_t>() + own.at("dropped").get<std::uint64_t>() > 0;
  };
  if (std::none_of(list.begin(), list.end(), counts)) return;
  summary.staleness.resize(list.size());
  for (std::size_t worker = 0; worker < list.size(); ++worker) {
    const Json& own = list[worker];
    summary.staleness[worker].merge({own.at("updates").get<std::uint64_t>(), own.at("dropped").get<std::uint64_t>(),
                                     own.at("sum").get<std::uint64_t>(), own.at("most").get<std::uint64_t>(),
                                     own.at("most_lag").get<std::uint64_t>(),
                                     own.at("bins").get<std::vector<std::uint64_t>>()});
  }
}

}  // namespace

std::uint64_t StalenessSummary::quantile(double share) const {
  double left = share * static_cast<double>(updates);
  for (std::size_t i = 0; i < bins.size(); ++i)
    if ((left -= static_cast<double>(bins[i])) <= 0) return i;
  return most;
}

bool Summary::ok() const {
  return std::all_of(bytes.begin(), bytes.end(), [](const ByteCheck& check) { return check.ok(); }) &&
         std::all_of(memory.begin(), memory.end(), [](const MemoryCheck& check) { return check.ok(); });
}

namespace {

void read_losses(const fs::path& folder, Summary& summary) {
  LineReader lines((folder / "recoveries.jsonl").string(), LineReader::IfMissing::no_lines);
  for (std::string line; lines.next(line);) {
    const Json entry = Json::parse(line);
    if (entry.contains("lost")) ++summary.losses;
    if (entry.contains("seconds")) summary.recovery_seconds.push_back(entry["seconds"].get<double>());
    if (entry.contains("workers")) summary.workers = entry["workers"].get<std::size_t>();
  }
}

/// Sums over the workers, which become means.
struct WorkerSums {
  double loss = 0;     ///< of the last step
  double samples = 0;  ///< of the last step
  double test_loss = 0;
  double test_rows = 0;
  std::optional<double> correct;      ///< nothing if the model does not tell classes apart
  std::map<std::string, double> own;  ///< of the model's own metrics
};

WorkerSums add_workers(Summary& summary, const fs::path& folder, Json& roles) {
  WorkerSums sums;
  summary.processors_used = 0;
  for (std::size_t rank = 0; rank < summary.workers; ++rank) {
    const std::string role = fmt::format("worker {}", rank);
    const Json report = read_report(folder, fmt::format("worker-{}", rank));
    add_worker(summary, role, report);
    add(summary.processors_used, report, "processors_used");
    if (const auto seconds = report.at("seconds").get<double>(); seconds > 0)
      summary.samples_per_second += report.at("samples").get<double>() / seconds;
    summary.tokens_per_sample = report.value("tokens_per_sample", std::size_t{0});
    const auto samples = report.at("final_samples").get<double>();
    sums.loss += number_of(report.at("final_loss")) * samples;
    sums.samples += samples;
    const Json& test = report.at("test");
    sums.test_rows += test.at("rows").get<double>();
    sums.test_loss += number_of(test.at("loss_sum"));
    if (test.contains("correct")) sums.correct = sums.correct.value_or(0) + test.at("correct").get<double>();
    if (test.contains("own"))
      for (const auto& [name, sum] : test["own"].items()) sums.own[name] += number_of(sum);
    summary.processors[role] = report.value("processor", "");
    roles[role] = report;
  }
  return sums;
}

void add_pipeline(Summary& summary, const JobOptions& job, const Json& roles) {
  if (job.pipeline == 1) return;
  const worker::PipelineSchedule schedule = worker::parse_pipeline_schedule(job.pipeline_schedule);
  PipelineSummary pipeline{
      .stages = job.pipeline,
      .micros = job.accumulate,
      .schedule = job.pipeline_schedule,
      .most_in_flight = worker::most_in_flight(worker::plan_stage(schedule, 0, job.pipeline, job.accumulate)),
      .predicted = worker::predicted_bubble(job.pipeline, job.accumulate)};
  std::size_t workers = 0;
  for (const Json& report : roles) {
    if (!report.contains("bubble")) continue;
    pipeline.bubble += report["bubble"].at("median").get<double>();
    ++workers;
  }
  if (workers == 0) return;
  pipeline.bubble /= static_cast<double>(workers);
  summary.pipeline = pipeline;
}

void add_results(Summary& summary, const WorkerSums& sums) {
  summary.tokens_per_second = summary.samples_per_second * static_cast<double>(summary.tokens_per_sample);
  summary.final_loss = sums.loss / sums.samples;
  if (sums.test_rows == 0) return;
  summary.test_loss = sums.test_loss / sums.test_rows;
  if (sums.correct) summary.test_accuracy = *sums.correct / sums.test_rows;
  for (const auto& [name, sum] : sums.own) summary.test_own[name] = sum / sums.test_rows;
}

/// The report of a worker that has this part of the model.
const Json& report_of_part(const Json& workers, std::size_t part) { return workers.at(fmt::format("worker {}", part)); }

/// Predicts the bytes of all servers together, those of each of `parts` parts of the model. If the workers made
/// different numbers of steps, a server receives the sum of the bytes that each worker sends, and the other way round.
std::optional<std::uint64_t> predicted_of_servers(const Summary& summary, const Json& workers, const char* figure,
                                                  std::string_view direction_of_workers, std::size_t parts) {
  const bool alike = std::ranges::all_of(
      workers, [&](const Json& report) { return report.at("steps").get<std::uint64_t>() == summary.steps; });
  std::optional<std::uint64_t> sum = 0;
  if (alike) {
    for (std::size_t part = 0; part < parts; ++part) {
      const auto one = predicted(report_of_part(workers, part), figure, summary.steps);
      sum = sum && one ? std::optional(*sum + *one) : std::nullopt;
    }
    return sum;
  }
  for (const ByteCheck& check : summary.bytes)
    if (check.direction == direction_of_workers)
      sum = sum && check.predicted ? std::optional(*sum + *check.predicted) : std::nullopt;
  return sum;
}

/// Adds the time for which a server works. The workers' steps take as long as the slowest worker's.
void add_server_time(Summary& summary, const Json& report, const Json& roles, bool standalone) {
  if (standalone) add(summary.processors_used, report, "processors_used");
  double steps_s = 0;
  for (const auto& [role, worker] : roles.items())
    if (role.starts_with("worker ")) steps_s = std::max(steps_s, worker.at("seconds").get<double>());
  if (!report.contains("busy_s") || steps_s <= 0) return;
  const double share = std::min(1.0, report["busy_s"].get<double>() / steps_s);
  summary.server_busy_share = std::max(summary.server_busy_share.value_or(0), share);
}

/// `roles` has the reports of the workers, and gets those of the servers.
void add_servers(Summary& summary, const fs::path& folder, const JobOptions& job, Json& roles) {
  const Json last = roles.back();
  const std::size_t parts = job.mesh().model_workers();
  ByteCheck received{"servers", "received", 0, predicted_of_servers(summary, roles, "server_receives", "sent", parts)};
  ByteCheck sent{"servers", "sent", 0, predicted_of_servers(summary, roles, "server_sends", "received", parts)};
  ByteCheck replicated{"servers", "replicated", 0, predicted(last, "server_replicates", summary.steps)};
  for (std::size_t rank = 0; rank < job.servers; ++rank) {
    if (summary.losses > 0 && !fs::exists(folder / "reports" / fmt::format("server-{}.json", rank)))
      continue;  // the server was lost after the workers were done
    const Json report = read_report(folder, fmt::format("server-{}", rank));
    const std::uint64_t in = payload(report, "received");
    const std::uint64_t out = payload(report, "sent");
    received.measured += in;
    sent.measured += out;
    summary.busiest_server_bytes = std::max({summary.busiest_server_bytes, in, out});
    replicated.measured += payload(report, "sent", kReplication);
    summary.server_peak_bytes = std::max(summary.server_peak_bytes, booked_peak(report));
    const MeshPart part = part_of_server(job, rank);
    add_memory(summary, fmt::format("server {}", rank), report,
               server_memory(report_of_part(roles, part.number), part.within(rank)));
    add_staleness(summary, report);
    add_server_time(summary, report, roles, rank < job.standalone_servers());
    if (rank >= job.standalone_servers())
      add_guest(summary, fmt::format("worker {}", rank - job.standalone_servers()), roles, report);
    roles[fmt::format("server {}", rank)] = report;
  }
  if (job.servers > 0) summary.bytes.insert(summary.bytes.end(), {received, sent});
  if (replicated.predicted) summary.bytes.push_back(replicated);
}

}  // namespace

Summary summarise(const fs::path& folder, const JobOptions& job, const Invocation& invocation) {
  Summary summary{.strategy = job.strategy, .begun_with = job.workers, .workers = job.workers};
  read_losses(folder, summary);
  std::uint64_t first = 0;
  if (summary.losses > 0)
    first = drop_repeated_steps(folder / "metrics.jsonl", !parse_consistency(job.consistency).each_push_updates);
  Json roles;
  const WorkerSums sums = add_workers(summary, folder, roles);
  for (const Json& report : roles)
    if (report.contains("predicted") && !report["predicted"].value("same_bits", true)) summary.same_bits = false;
  if (summary.workers < job.workers) summary.same_bits = false;  // the sums have other parts
  if (summary.mixed_processors()) summary.same_bits = false;
  add_pipeline(summary, job, roles);
  add_servers(summary, folder, job, roles);
  summary.system_memory = read_system_memory(folder / "memory.jsonl");
  if (summary.losses > 0) {
    // A report covers its own process's life, which includes steps that were repeated.
    summary.steps = *job.steps - first;
    summary.bytes.clear();
    summary.busiest_server_bytes = 0;
    for (MemoryCheck& check : summary.memory) check.predicted.reset();
  }
  add_results(summary, sums);

  Json json = summary_document(summary);
  json["refused"] = refused(folder, roles);
  json["roles"] = roles;
  write_whole((folder / "summary.json").string(), json.dump(2) + "\n");
  std::map<std::string, std::string> hosts;
  for (const auto& [role, report] : roles.items()) hosts[role] = report.value("host", "");
  write_manifest(folder, job, invocation, hosts, summary.processors);
  return summary;
}

std::optional<double> Summary::test_perplexity() const {
  return reads_text() && test_loss ? std::optional(std::exp(*test_loss)) : std::nullopt;
}

bool Summary::mixed_processors() const { return are_mixed(processors); }

bool has_training(const fs::path& folder) {
  return fs::exists(folder / "reports" / "worker-0.json") && read_report(folder, "worker-0").contains("steps");
}

}  // namespace psring::cli
