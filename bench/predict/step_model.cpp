#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <psring/bench/predict/step_model.h>
#include <psring/bench/predict/timed_job.h>
#include <psring/bench/predict/worker_actions.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/fault.h>

namespace psring::bench {

double update_bytes_per_element(const JobOptions& job, std::size_t state_values, DType parameters, DType gradients) {
  const bool master = job.master_copy && parameters != DType::f32;
  const std::size_t floats = state_values + (master ? 1 : 0);
  return static_cast<double>(size_bytes(gradients) + 2 * size_bytes(parameters) + 2 * floats * sizeof(float));
}

double crowding(const Mesh& mesh, const HostCosts& costs, std::size_t threads) {
  if (costs.processors <= 0) return 1;
  const std::size_t workers = costs.one_host ? mesh.workers() : mesh.workers_per_host;
  return std::max(1.0, static_cast<double>(workers * threads) / costs.processors);
}

/// Frames of W workers come to P processors at the same moment: the first P wait for none, the last for W - P of them.
FrameWork TimedJob::shared_work(double every_s) const {
  return {.station = station(StepStation::processors),
          .service_s = every_s / costs.processors,
          .waits = std::max(0.0, 1 - costs.processors / static_cast<double>(mesh.workers())) / 2};
}

double TimedJob::update_s(double elements) const {
  const Layout& layout = work.layout;
  return elements * update_bytes_per_element(job, costs.state_values, layout.parameter_type, layout.gradient_type) *
         costs.update_s_per_byte * crowding(mesh, costs, 1);
}

namespace {

/// The quantile of the standard normal distribution, by bisection of erfc.
double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Workers by their factor and jitter: how many have both.
using Paces = std::map<std::pair<double, double>, double>;

Paces paces_of(const JobOptions& job) {
  Paces paces;
  for (std::uint32_t rank = 0; rank < job.workers; ++rank) {
    double slow = 1;
    double jitter = 0;
    for (const Fault& fault : faults_of(job.fault, {net::Role::worker, rank})) {
      if (fault.kind == Fault::Kind::slow) slow *= fault.factor;
      if (fault.kind == Fault::Kind::jitter) jitter = fault.factor;
    }
    ++paces[{slow, jitter}];
  }
  return paces;
}

}  // namespace

double expected_slowest(std::size_t n, double deviation) {
  if (n <= 1 || deviation <= 0) return 1;
  constexpr double kBlom = 0.375;
  const auto count = static_cast<double>(n);
  return 1 + deviation * normal_quantile((count - kBlom) / (count - 2 * kBlom + 1));
}

double expected_slowest(const JobOptions& job) {
  if (job.fault.empty()) return 1;
  const Paces paces = paces_of(job);
  double most = 0;
  for (const auto& [pace, count] : paces) most = std::max(most, pace.first * (1 + pace.second));
  constexpr int kParts = 4000;  // of the integral; its error is below most / kParts
  double sum = 0;
  for (int i = 0; i < kParts; ++i) {
    const double x = most * (i + 0.5) / kParts;
    double all_faster = 1;
    for (const auto& [pace, count] : paces) {
      const double least = pace.first * (1 - pace.second);
      const double width = 2 * pace.first * pace.second;
      const double faster = width > 0 ? std::clamp((x - least) / width, 0.0, 1.0) : x < least ? 0.0 : 1.0;
      all_faster *= std::pow(faster, count);
    }
    sum += 1 - all_faster;
  }
  return sum * most / kParts;
}

namespace {

constexpr std::array<const char*, static_cast<std::size_t>(StepStation::count)> kNames{
    "link within host", "worker link", "worker link", "server link", "server link", "server", "processors"};

/// `computes`: the time that the stage with the most work computes.
void name_bound(StepEstimate& step, const std::array<double, kNames.size()>& busy, double computes) {
  const auto most = static_cast<std::size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  step.link_s = *std::max_element(&busy[static_cast<std::size_t>(StepStation::card_out)],
                                  &busy[static_cast<std::size_t>(StepStation::server)]);
  if (busy[most] >= step.step_s / 2 && busy[most] >= computes)
    step.bound = kNames[most];
  else
    step.bound = computes >= step.step_s / 2 ? "compute" : step.bubble >= 0.5 ? "bubble" : "latency";
}

TimedPeriod period_of(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                      const Mesh& mesh, const HostCosts& costs, const ComputePace& pace) {
  std::vector<TimedJob> timed;
  for (const Workload& work : stages) timed.push_back({job, kind, work, mesh, costs});
  if (kind.servers || !stages.front().rows.empty()) return served_period(timed.front(), pace);
  return pipeline_period(timed, pace);
}

/// Splits the step into computing, the bubble, and the communication that nothing hides: each the mean over the stages.
/// Returns the time that the stage with the most work computes.
double split_step(const TimedPeriod& period, std::span<const Workload> stages, double slowest, StepEstimate& estimate) {
  const auto count = static_cast<double>(stages.size());
  double most = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const double computes = stages[stage].compute_s() * slowest;
    most = std::max(most, computes);
    estimate.compute_s += computes / count;
    estimate.bubble += period.waited_s[stage] / period.step_s / count;
    estimate.exposed_s += std::max(0.0, period.step_s - computes - period.waited_s[stage]) / count;
  }
  return most;
}

}  // namespace

StepEstimate estimate_step(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                           const Mesh& mesh, const HostCosts& costs) {
  if (kind.servers && job.mesh().divides_model())
    fail(ErrorKind::usage, "--strategy {} in a mesh: psring plan has no model of its time; use psring compare",
         job.strategy);
  // A planned worker's memory has addresses alone, as a GPU's has for the host; hybrid is ddp, which can use a GPU.
  if (!kind.on_device && !kind.row_servers)
    fail(ErrorKind::usage, "--strategy {}: its time has no model, because it may read values on the host",
         job.strategy);
  const double slowest =
      expected_slowest(job) * (sleeps(job) ? 1 : expected_slowest(mesh.workers(), costs.deviation)) *
      (sleeps(job) || costs.device ? 1 : crowding(mesh, costs, std::max<std::size_t>(1, job.threads)));
  const double more_s = sleeps(job) ? costs.sleep_s : 0;
  StepEstimate estimate;
  TimedPeriod period;
  const auto run = [&](double factor) {
    period = period_of(job, kind, stages, mesh, costs, {factor, more_s});
    estimate = {.step_s = period.step_s};
    name_bound(estimate, period.busy_s, split_step(period, stages, slowest, estimate));
  };
  run(slowest);
  // Communication takes memory and processors from computing, for the share of the step in which it runs.
  if (costs.slowdown > 1 && !kind.one_worker && !sleeps(job))
    run(slowest * (1 + (costs.slowdown - 1) * std::min(1.0, estimate.link_s / estimate.step_s)));
  return estimate;
}

double least_step_s(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                    const Mesh& mesh) {
  if (!kind.servers || job.colocated_servers() > 0 || job.mesh().divides_model()) return 0;
  const HostCosts costs;
  const TimedJob timed{job, kind, stages.front(), mesh, costs};
  const Layout& layout = stages.front().layout;
  const DType type = job.optimizer_on == "server" ? layout.parameter_type : layout.gradient_type;
  double pulled = 0;  // by a worker
  for (const WorkerAction& action : worker_actions(timed, {}))
    if ((action.kind == WorkerAction::Kind::pull || action.pulls) && action.unit < layout.units.size())
      pulled += static_cast<double>(layout.units[action.unit].elements * size_bytes(type));
  for (const RowTraffic& rows : stages.front().rows) pulled += rows.row_bytes * static_cast<double>(job.servers);
  const net::LinkSpec& card = mesh.hosts > 1 ? mesh.between : mesh.within;
  const double senders = mesh.hosts > 1 ? static_cast<double>(mesh.workers_per_host) : 1;
  const double per_server = static_cast<double>(mesh.workers()) / static_cast<double>(job.servers);
  return pulled * std::max(senders, per_server) * 8 / card.bits_per_second;
}

}  // namespace psring::bench
