#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <psring/cli/compare/comparison.h>
#include <psring/common/base/median.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/fault.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/pace.h>

namespace psring::cli {
namespace {

std::uint64_t measured(const ByteCheck& check) { return check.measured; }
std::uint64_t measured(const MemoryCheck& check) { return check.peak; }

/// False if a prediction fails; true if all hold, and nothing that was measured lacks one; else nothing.
template <class Check>
std::optional<bool> all_predicted(const std::vector<Check>& checks, std::string_view role) {
  bool any = false;
  bool all = true;
  for (const Check& check : checks) {
    if (!check.role.starts_with(role)) continue;
    if (!check.ok()) return false;
    any = any || check.predicted;
    all = all && (check.predicted || measured(check) == 0);
  }
  return any && all ? std::optional(true) : std::nullopt;
}

template <class Ask>
std::optional<bool> in_all_runs(const Row& row, const Ask& ask) {
  bool all = !row.runs.empty();
  for (const Summary& run : row.runs) {
    const std::optional<bool> one = ask(run);
    if (one && !*one) return false;
    all = all && one;
  }
  return all ? std::optional(true) : std::nullopt;
}

/// The median of figures; nothing if one of them is not known, or there are none.
std::optional<double> median_of(const std::vector<std::optional<double>>& figures) {
  std::vector<double> values;
  for (const std::optional<double>& figure : figures) {
    if (!figure) return std::nullopt;
    values.push_back(*figure);
  }
  return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
}

std::optional<double> median_of_runs(const Row& row, std::optional<double> Summary::*figure) {
  std::vector<std::optional<double>> figures;
  for (const Summary& run : row.runs) figures.push_back(run.*figure);
  return median_of(figures);
}

/// How many times as long as the job's other cards a process's card takes for the same bytes, by --fault link.
double slower_card(const JobOptions& job, net::Peer peer) {
  double least = net::parse_link(job.link).bits_per_second;
  const double all = least;
  for (const Fault& fault : faults_of(job.fault, peer))
    if (fault.kind == Fault::Kind::link) least = std::min(least, fault.bits_per_second);
  return all / least;
}

/// The same for the card behind a row of counted bytes: a worker's, or the slowest of the servers'.
double slower_card(const JobOptions& job, const ByteCheck& check) {
  if (job.link.empty()) return 1;
  if (!check.role.starts_with(kServers)) {
    const std::size_t rank = std::stoul(check.role.substr(check.role.find(' ') + 1));
    return slower_card(job, {net::Role::worker, static_cast<std::uint32_t>(rank)});
  }
  double most = 1;
  for (std::uint32_t rank = 0; rank < job.servers; ++rank)
    most = std::max(most, slower_card(job, {net::Role::server, rank}));
  return most;
}

}  // namespace

const char* to_string(Equality equality) {
  static constexpr std::array<std::string_view, 5> kNames = {"—", "=", "≈", "inexact", "✗"};
  return name_in(kNames, equality).data();
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  const auto [least, most] = std::ranges::minmax(values);
  return {median(std::move(values)), least, most};
}

Spread Row::spread(double Summary::*figure) const {
  std::vector<double> values;
  for (const Summary& run : runs) values.push_back(run.*figure);
  return spread_of(std::move(values));
}

bool Row::ok() const {
  return equality != Equality::differs &&
         std::all_of(runs.begin(), runs.end(), [](const Summary& run) { return run.ok(); });
}

StepFigures Row::step() const {
  const Summary& run = runs.front();
  const JobOptions& job = entry.job;
  const auto steps = static_cast<double>(run.steps);
  const bool sleeps = worker::parse_compute(job.compute).has_value();
  const bool gpus = job.device == "cuda";
  const auto here = [&](std::size_t processes) { return (processes + hosts - 1) / hosts; };
  const std::size_t server_threads = here(job.standalone_servers()) * job.server_threads;
  StepFigures step{.step_s = spread(&Summary::step_seconds).median,
                   .exposed_s = spread(&Summary::exposed_seconds).median,
                   .sockets = !job.link.empty() || net::parse_way(job.transport) == net::Way::tcp,
                   .memory_bytes_per_s = memory_bytes_per_s,
                   .threads = (sleeps ? 0 : here(job.workers) * job.threads) + server_threads,
                   .processors = processors,
                   .sleeps = sleeps,
                   .gpus = gpus};
  if (!job.link.empty()) step.link_bytes_per_s = net::parse_link(job.link).bits_per_second / 8;
  step.others = median_of(others);
  step.processors_used = median_of_runs(*this, &Summary::processors_used);
  if (const auto share = median_of_runs(*this, &Summary::server_busy_share)) step.server_busy_s = *share * step.step_s;
  std::vector<std::vector<WorkerTimes>> times;
  for (const Summary& each : runs) times.push_back(each.worker_times);
  add_worker_times(step, times);
  step.slowest_busy_s = std::min(step.slowest_busy_s, step.step_s);  // medians over different runs
  double sent = 0;
  for (const ByteCheck& check : run.bytes) {
    const double bytes = static_cast<double>(check.measured) / steps;
    const bool servers = check.role.starts_with(kServers);
    const double of_server = bytes / static_cast<double>(std::max<std::size_t>(1, job.servers));
    // A worker's row includes the server in its process. Standalone servers move at least the mean.
    if (check.direction == "sent" && (servers || !gpus))
      sent += servers ? of_server * static_cast<double>(job.standalone_servers()) : bytes;
    double& busiest = servers ? step.server_bytes : step.worker_bytes;
    busiest = std::max(busiest, (servers ? of_server : bytes) * slower_card(job, check));
  }
  step.server_bytes = std::max(step.server_bytes, static_cast<double>(run.busiest_server_bytes) / steps);
  double booked = 0;
  for (const MemoryCheck& check : run.memory) {
    // The host's memory does not move what lies in a GPU's.
    const bool on_host = check.role.starts_with(kServers) ? job.server_device == "cpu" : !gpus;
    if (on_host) booked += static_cast<double>(check.peak);
  }
  step.memory_bytes = 2 * (booked + sent);
  return step;
}

Choices Row::choices() const {
  const JobOptions& job = entry.job;
  return {.workers = job.workers,
          .servers = job.servers,
          .one_worker = entry.kind->one_worker,
          .gathers_twice = entry.kind->gathers && job.reshard_after_forward && !job.share_host_parameters,
          .overlap = job.overlap,
          .prefetch = job.prefetch,
          .bounded_staleness = job.consistency.starts_with("ssp")};
}

Json bound_json(const Row& row) {
  const StepFigures step = row.step();
  const Bound bound = bound_of(step);
  return {{"bound_by", to_string(bound)},
          {"because", because(bound, step)},
          {"next", advice(bound, step, row.choices())},
          {"not_comparable", not_comparable(step)}};
}

std::optional<std::uint64_t> moved_bytes(const Row& row, std::string_view role) {
  const Summary& run = row.runs.front();
  if (run.losses > 0) return std::nullopt;
  std::map<std::string, std::uint64_t> by_process;
  for (const ByteCheck& check : run.bytes)
    if (check.role.starts_with(role)) by_process[check.role] += check.measured;
  std::uint64_t most = 0;
  for (const auto& [process, bytes] : by_process) most = std::max(most, bytes);
  return most / run.steps;
}

std::optional<bool> bytes_ok(const Row& row, std::string_view role) {
  return in_all_runs(row, [&](const Summary& run) { return all_predicted(run.bytes, role); });
}

std::optional<bool> memory_ok(const Row& row, std::string_view role) {
  return in_all_runs(row, [&](const Summary& run) { return all_predicted(run.memory, role); });
}

double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  const worker::TensorFile left(a.string());
  const worker::TensorFile right(b.string());
  constexpr std::size_t kPiece = 65536;
  std::vector<float> x(kPiece);
  std::vector<float> y(kPiece);
  double largest = 0;
  for (const worker::TensorEntry& tensor : left.entries()) {
    if (tensor.dtype == "U64") continue;  // the keys of rows, which follow from the samples alone
    const worker::TensorEntry* other = right.find(tensor.name);
    if (other == nullptr || other->elements != tensor.elements)
      fail(ErrorKind::data, "{}: tensor {} does not match {}", b.string(), tensor.name, a.string());
    for (std::size_t at = 0; at < tensor.elements; at += kPiece) {
      const std::size_t count = std::min(kPiece, tensor.elements - at);
      left.read(tensor, at, {x.data(), count});
      right.read(*other, at, {y.data(), count});
      for (std::size_t i = 0; i < count; ++i) {
        const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
        if (!std::isfinite(difference)) return std::numeric_limits<double>::quiet_NaN();
        largest = std::max(largest, difference);
      }
    }
  }
  return largest;
}

bool same_bytes(const std::filesystem::path& a, const std::filesystem::path& b) {
  return read_whole(a) == read_whole(b);
}

}  // namespace psring::cli
