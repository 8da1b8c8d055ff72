#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>
#include <version.h>

#include <psring/cli/summary.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>

namespace psring::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!(text << in.rdbuf())) fail(ErrorKind::data, "{}: cannot read", file.string());
  return text.str();
}

/// JSON has no word for what is not a number.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Json read_report(const fs::path& folder, const std::string& role) {
  const fs::path file = folder / "reports" / (role + ".json");
  Json json = Json::parse(read_text(file), nullptr, false);
  if (json.is_discarded()) fail(ErrorKind::data, "{}: not JSON", file.string());
  return json;
}

/// Connections that were refused, by the coordinator and by all roles.
std::uint64_t refused(const fs::path& folder, const Json& roles) {
  std::uint64_t sum = 0;
  if (fs::exists(folder / "reports" / "coordinator-0.json"))
    sum += read_report(folder, "coordinator-0").value("refused", std::uint64_t{0});
  for (const auto& [role, report] : roles.items()) sum += report.value("refused", std::uint64_t{0});
  return sum;
}

void write_json(const fs::path& file, const Json& json) { write_whole(file.string(), json.dump(2) + "\n"); }

constexpr std::string_view kExchange[] = {"push",       "pull",           "push_pull",  "values",
                                          "all_reduce", "reduce_scatter", "all_gather", "message"};
constexpr std::string_view kReplication[] = {"replicate"};

/// Payload that tensors made, whatever it was for; start-up and verdicts are control.
std::uint64_t payload(const Json& report, const std::string& direction,
                      std::span<const std::string_view> operations = kExchange) {
  std::uint64_t sum = 0;
  if (!report.contains("bytes") || !report["bytes"].contains(direction)) return 0;
  for (const auto& [operation, peers] : report["bytes"][direction].items()) {
    if (std::find(operations.begin(), operations.end(), operation) == operations.end()) continue;
    for (const auto& peer : peers) sum += peer.at("payload").get<std::uint64_t>();
  }
  return sum;
}

std::uint64_t booked_peak(const Json& report) {
  std::uint64_t sum = 0;
  for (const auto& [category, entry] : report.at("memory").items())
    if (entry.is_object()) sum += entry.at("peak").get<std::uint64_t>();
  return sum;
}

std::optional<std::uint64_t> predicted(const Json& report, const char* what, std::uint64_t steps) {
  if (!report.contains("predicted") || !report["predicted"].contains(what)) return std::nullopt;
  const Json& predicted = report["predicted"];
  return predicted[what].get<std::uint64_t>() * steps +
         predicted.value(fmt::format("{}_of_run", what), std::uint64_t{0});
}

/// `prediction`: of a worker; `what`: whose memory.
void add_memory(Summary& summary, const std::string& role, const Json& report, const Json& prediction,
                const char* what) {
  const Json predicted = prediction.value("predicted", Json::object()).value(what, Json::object());
  for (const auto& [category, entry] : report.at("memory").items()) {
    if (!entry.is_object()) continue;
    MemoryCheck check{role, category, entry.at("peak").get<std::uint64_t>(), std::nullopt};
    if (predicted.contains(category)) check.predicted = predicted[category].get<std::uint64_t>();
    summary.memory.push_back(check);
  }
}

WorkerTimes worker_times(const Json& report) {
  WorkerTimes times{.busy_s = report.at("busy_step_s").at("median").get<double>(),
                    .exposed_s = report.at("exposed_step_s").at("median").get<double>()};
  if (!report.contains("run_delay")) return times;
  times.run_delay = report["run_delay"].get<double>();
  times.delay_s = *times.run_delay * report.at("step_s").at("median").get<double>();
  return times;
}

/// With backup workers a slow one makes fewer steps than others.
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
  add_memory(summary, role, report, report, "worker_memory");
}

/// A server in a worker's process: that worker's row is the process's, both roles together. What it is said to move in
/// a step is of steps of the others, each alike.
void add_guest(Summary& summary, const std::string& worker, const Json& roles, const Json& report) {
  std::uint64_t others = 0;
  std::uint64_t steps = 0;
  for (const auto& [role, of] : roles.items())
    if (role.starts_with("worker ") && role != worker) {
      ++others;
      steps += of.at("steps").get<std::uint64_t>();
    }
  const Json& worker_report = roles.at(worker);
  for (ByteCheck& check : summary.bytes) {
    if (check.role != worker) continue;
    const bool sent = check.direction == "sent";
    const auto a_step = predicted(worker_report, sent ? "own_server_sends" : "own_server_receives", 1);
    check.measured += payload(report, check.direction);
    if (!a_step)
      check.predicted.reset();
    else if (check.predicted && others > 0)
      *check.predicted += *a_step * steps / others;
  }
  summary.worker_peak_bytes = std::max(summary.worker_peak_bytes, booked_peak(worker_report) + booked_peak(report));
}

/// What a server says of each worker's gradients; nothing where it has counted none.
void add_staleness(Summary& summary, const Json& report) {
  const Json& list = report.at("staleness");
  const auto counts = [](const Json& of) {
    return of.at("updates").get<std::uint64_t>() + of.at("dropped").get<std::uint64_t>() > 0;
  };
  if (std::none_of(list.begin(), list.end(), counts)) return;
  summary.staleness.resize(list.size());
  for (std::size_t worker = 0; worker < list.size(); ++worker) {
    const Json& of = list[worker];
    summary.staleness[worker].add({of.at("updates").get<std::uint64_t>(), of.at("dropped").get<std::uint64_t>(),
                                   of.at("sum").get<std::uint64_t>(), of.at("most").get<std::uint64_t>(),
                                   of.at("most_lag").get<std::uint64_t>(),
                                   of.at("bins").get<std::vector<std::uint64_t>>()});
  }
}

Json to_json(const StalenessSummary& of) {
  return {{"mean", of.mean()},     {"most", of.most},       {"most_lag", of.most_lag},
          {"updates", of.updates}, {"dropped", of.dropped}, {"histogram", of.bins}};
}

Json to_json(const Summary& summary) {
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
  if (summary.test_loss) json["test_loss"] = *summary.test_loss;
  if (summary.losses > 0) {
    json["losses"] = summary.losses;
    json["workers"] = summary.workers;
  }
  if (!summary.recovery_seconds.empty()) json["recovery_s"] = summary.recovery_seconds;
  for (const StalenessSummary& worker : summary.staleness) json["staleness"].push_back(to_json(worker));
  if (summary.predicted_exposed_seconds) json["predicted_exposed_comm_s"] = *summary.predicted_exposed_seconds;
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
  const auto count = [&](const char* figure, const std::map<std::string, std::uint64_t>& by_process) {
    for (const auto& [process, peak] : by_process) json["system_memory"][figure][process] = peak;
  };
  count("rss_peak", summary.system_memory.rss);
  count("pss_peak", summary.system_memory.pss);
  if (summary.system_memory.pss_together)
    json["system_memory"]["pss_together_peak"] = *summary.system_memory.pss_together;
  return json;
}

}  // namespace

void StalenessSummary::add(const StalenessSummary& other) {
  updates += other.updates;
  dropped += other.dropped;
  sum += other.sum;
  most = std::max(most, other.most);
  most_lag = std::max(most_lag, other.most_lag);
  bins.resize(std::max(bins.size(), other.bins.size()));
  for (std::size_t i = 0; i < other.bins.size(); ++i) bins[i] += other.bins[i];
}

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

std::optional<bool> Summary::memory_ok(std::string_view role) const {
  std::optional<bool> ok;
  for (const MemoryCheck& check : memory)
    if (check.predicted && check.role.starts_with(role)) ok = ok.value_or(true) && check.ok();
  return ok;
}

namespace {

void read_losses(const fs::path& folder, Summary& summary) {
  std::ifstream in(folder / "recoveries.jsonl");
  for (std::string line; std::getline(in, line);) {
    const Json entry = Json::parse(line);
    if (entry.contains("lost")) ++summary.losses;
    if (entry.contains("seconds")) summary.recovery_seconds.push_back(entry["seconds"].get<double>());
    if (entry.contains("workers")) summary.workers = entry["workers"].get<std::size_t>();
  }
}

/// Of steps that were made again, by all workers or (where each has its own) by one, what was made last counts. Lines
/// of several processes may come in any order.
/// Returns the first step.
std::uint64_t keep_last_metrics(const fs::path& file, bool by_all) {
  using Membership = std::uint64_t;
  std::vector<std::string> lines;
  std::map<std::tuple<Json, Json, bool>, std::pair<Membership, std::vector<std::size_t>>> last;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line); lines.push_back(line)) {
    const Json entry = Json::parse(line);
    auto& [membership, at] = last[{by_all ? Json() : entry["worker"], entry["step"], entry.contains("test_rows")}];
    const auto of_line = entry.value("membership", Membership{0});
    if (of_line > membership) at.clear();
    if (of_line >= membership) at.push_back(lines.size());
    membership = std::max(membership, of_line);
  }
  std::set<std::size_t> kept;
  std::uint64_t first = last.empty() ? 0 : std::numeric_limits<std::uint64_t>::max();
  for (const auto& [key, found] : last) first = std::min(first, std::get<1>(key).get<std::uint64_t>());
  for (const auto& [key, found] : last) kept.insert(found.second.begin(), found.second.end());
  std::ofstream out(file);
  for (const std::size_t at : kept) out << lines[at] << "\n";
  flush(out, file.string());
  return first;
}

}  // namespace

Summary summarise(const fs::path& folder, const JobOptions& job, const Invocation& invocation) {
  Summary summary{.strategy = job.strategy, .begun_with = job.workers, .workers = job.workers};
  read_losses(folder, summary);
  std::uint64_t first = 0;
  if (summary.losses > 0)
    first = keep_last_metrics(folder / "metrics.jsonl", !parse_consistency(job.consistency).each_push_updates);
  Json roles;
  double loss_sum = 0;
  double last_samples = 0;
  double rows = 0;
  std::optional<double> correct;  ///< where the model tells classes apart
  double test_loss = 0;
  Json last;
  for (std::size_t rank = 0; rank < summary.workers; ++rank) {
    const Json report = read_report(folder, fmt::format("worker-{}", rank));
    add_worker(summary, fmt::format("worker {}", rank), report);
    if (const auto seconds = report.at("seconds").get<double>(); seconds > 0)
      summary.samples_per_second += report.at("samples").get<double>() / seconds;
    loss_sum += number_of(report.at("final_loss")) * report.at("final_samples").get<double>();
    last_samples += report.at("final_samples").get<double>();
    rows += report.at("test").at("rows").get<double>();
    if (const Json& test = report.at("test"); test.contains("correct"))
      correct = correct.value_or(0) + test.at("correct").get<double>();
    test_loss += number_of(report.at("test").at("loss_sum"));
    summary.processors[fmt::format("worker {}", rank)] = report.value("processor", "");
    roles[fmt::format("worker {}", rank)] = report;
    last = report;
  }
  if (last.contains("predicted")) summary.same_bits = last["predicted"].value("same_bits", true);
  if (summary.workers < job.workers) summary.same_bits = false;  // sums of other parts
  if (summary.mixed_processors()) summary.same_bits = false;
  // As many steps of all workers; or, where they made different numbers of them, what each of them sends and receives.
  const bool alike = std::ranges::all_of(
      roles, [&](const Json& report) { return report.at("steps").get<std::uint64_t>() == summary.steps; });
  const auto of_servers = [&](const char* what, std::string_view workers) {
    if (alike) return predicted(last, what, summary.steps);
    std::optional<std::uint64_t> sum = 0;
    for (const ByteCheck& check : summary.bytes)
      if (check.direction == workers)
        sum = sum && check.predicted ? std::optional(*sum + *check.predicted) : std::nullopt;
    return sum;
  };
  ByteCheck received{"servers", "received", 0, of_servers("server_receives", "sent")};
  ByteCheck sent{"servers", "sent", 0, of_servers("server_sends", "received")};
  ByteCheck replicated{"servers", "replicated", 0, predicted(last, "server_replicates", summary.steps)};
  for (std::size_t rank = 0; rank < job.servers; ++rank) {
    if (summary.losses > 0 && !fs::exists(folder / "reports" / fmt::format("server-{}.json", rank)))
      continue;  // it was lost after the workers were done
    const Json report = read_report(folder, fmt::format("server-{}", rank));
    received.measured += payload(report, "received");
    sent.measured += payload(report, "sent");
    replicated.measured += payload(report, "sent", kReplication);
    summary.server_peak_bytes = std::max(summary.server_peak_bytes, booked_peak(report));
    add_memory(summary, fmt::format("server {}", rank), report, last, "server_memory");
    add_staleness(summary, report);
    summary.server_busy_seconds =
        std::max(summary.server_busy_seconds, report.value("busy_s", 0.0) / static_cast<double>(summary.steps));
    if (const std::string host = fmt::format("worker {}", rank); job.placement == "colocated")
      add_guest(summary, host, roles, report);
    roles[fmt::format("server {}", rank)] = report;
  }
  summary.system_memory = read_system_memory(folder / "memory.jsonl");
  if (job.servers > 0) summary.bytes.insert(summary.bytes.end(), {received, sent});
  if (replicated.predicted) summary.bytes.push_back(replicated);
  if (summary.losses > 0) {
    // What reports tell of is a process's own life, and steps that were made again.
    summary.steps = *job.steps - first;
    summary.bytes.clear();
    for (MemoryCheck& check : summary.memory) check.predicted.reset();
  }
  summary.final_loss = loss_sum / last_samples;
  if (rows > 0) {
    summary.test_loss = test_loss / rows;
    if (correct) summary.test_accuracy = *correct / rows;
  }

  Json json = to_json(summary);
  json["refused"] = refused(folder, roles);
  json["roles"] = roles;
  write_json(folder / "summary.json", json);
  std::map<std::string, std::string> hosts;
  for (const auto& [role, report] : roles.items()) hosts[role] = report.value("host", "");
  write_manifest(folder, job, invocation, hosts, summary.processors);
  return summary;
}

bool are_mixed(const std::map<std::string, std::string>& processors) {
  return std::any_of(processors.begin(), processors.end(),
                     [&](const auto& of) { return of.second != processors.begin()->second; });
}

bool Summary::mixed_processors() const { return are_mixed(processors); }

void write_manifest(const fs::path& folder, const JobOptions& job, const Invocation& invocation,
                    const std::map<std::string, std::string>& hosts,
                    const std::map<std::string, std::string>& processors) {
  Json manifest = {{"version", kVersion},
                   {"commit", kCommit},
                   {"command", invocation.words},
                   {"seed", job.seed},
                   {"hosts", hosts},
                   {"processors", processors},
                   {"mixed_processors", are_mixed(processors)},
                   {"link", job.link.empty() ? Json() : Json(job.link)},
                   {"job", Json::parse(psring::to_json(job))}};
  // How it was launched, beside what load, and the run's identity stand in the manifest that is replaced.
  std::ifstream in(folder / kManifestFile);
  if (const Json before = Json::parse(in, nullptr, false); before.is_object()) {
    for (const char* name : {"launch", "other_programs"})
      if (before.contains(name)) manifest[name] = before[name];
    if (job.run_id.empty() && before.contains("job")) manifest["job"]["run_id"] = before["job"].value("run_id", "");
  }
  write_json(folder / kManifestFile, manifest);
}

bool has_training(const fs::path& folder) {
  return fs::exists(folder / "reports" / "worker-0.json") && read_report(folder, "worker-0").contains("steps");
}

std::string count_of(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void join_traces(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "trace", error)) return;
  std::ofstream out(folder / "trace.json");
  out << "{\"traceEvents\":[\n";
  std::string events;  // each followed by a comma
  for (const auto& entry : fs::directory_iterator(folder / "trace")) events += read_text(entry.path());
  out << events.substr(0, events.rfind(',')) << "\n]}\n";
  flush(out, (folder / "trace.json").string());
  fs::remove_all(folder / "trace", error);
}

std::string losses_line(const Summary& summary) {
  std::string text =
      "went on after " + (summary.losses == 1 ? std::string("1 loss") : fmt::format("{} losses", summary.losses));
  if (std::vector<double> times = summary.recovery_seconds; !times.empty()) {
    std::sort(times.begin(), times.end());
    text += fmt::format(", within {:.2f} s (median; worst {:.2f} s)", times[times.size() / 2], times.back());
  }
  if (summary.workers < summary.begun_with)
    text += fmt::format(", with {} of {} workers at the end", summary.workers, summary.begun_with);
  return text + "; bytes are not compared, as steps were repeated";
}

std::string skipped_line(const Summary& summary) {
  return fmt::format("{} skipped, as gradients were not finite (--loss-scale)",
                     count_of(summary.skipped_steps, "step"));
}

std::string describe(const Summary& summary, const fs::path& folder) {
  std::string text = fmt::format("{}: {} steps", summary.strategy, summary.steps);
  if (std::isfinite(summary.final_loss)) text += fmt::format(", loss {:.4f}", summary.final_loss);
  if (summary.test_accuracy) text += fmt::format(", test accuracy {:.4f}", *summary.test_accuracy);
  if (summary.test_loss && !summary.test_accuracy) text += fmt::format(", test loss {:.4f}", *summary.test_loss);
  text += fmt::format("; {:.0f} samples/s, {:.2f} ms a step, {:.2f} ms of it waiting\n", summary.samples_per_second,
                      summary.step_seconds * 1e3, summary.exposed_seconds * 1e3);
  if (summary.skipped_steps > 0) text += "  " + skipped_line(summary) + "\n";
  if (summary.losses > 0) text += "  " + losses_line(summary) + "\n";
  for (std::size_t worker = 0; worker < summary.staleness.size(); ++worker) {
    const StalenessSummary& of = summary.staleness[worker];
    text += fmt::format("  worker {}: staleness {:.2f}, at most {}; lag at most {}", worker, of.mean(), of.most,
                        of.most_lag);
    text += of.dropped > 0 ? fmt::format("; {} pushes of pieces came too late\n", of.dropped) : "\n";
  }
  for (const ByteCheck& check : summary.bytes) {
    const double each = static_cast<double>(check.measured) / static_cast<double>(summary.steps);
    if (check.measured == 0 && check.predicted.value_or(0) == 0) continue;
    text += fmt::format("  {} {} {:.0f} bytes a step", check.role, check.direction, each);
    if (check.predicted)
      text += check.ok() ? ", as predicted"
                         : fmt::format(", predicted {:.0f}",
                                       static_cast<double>(*check.predicted) / static_cast<double>(summary.steps));
    text += "\n";
  }
  for (const MemoryCheck& check : summary.memory)
    if (!check.ok())
      text += fmt::format("  {} booked {} bytes for {}, predicted {}\n", check.role, check.peak, check.category,
                          *check.predicted);
  return text + fmt::format("run folder: {}\n", folder.string());
}

}  // namespace psring::cli
