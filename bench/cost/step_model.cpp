#include <algorithm>
#include <array>
#include <memory>

#include <psring/bench/cost/served_job.h>
#include <psring/bench/cost/step_model.h>
#include <psring/bench/cost/stragglers.h>
#include <psring/bench/cost/timed_exchange.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/error.h>

namespace psring::bench {

using worker::Pass;

double update_bytes_per_element(const JobOptions& job, DType parameters, DType gradients) {
  const bool master = job.master_copy && parameters != DType::f32;
  const bool two = job.optimizer == "adam" || job.optimizer.starts_with("adamw") || job.optimizer == "lamb";
  const bool one = job.optimizer == "adagrad" || job.optimizer == "rmsprop" ||
                   (job.optimizer == "sgd" && job.momentum.value_or(0) != 0);
  const std::size_t floats = (two ? 2 : one ? 1 : 0) + (master ? 1 : 0);
  return static_cast<double>(size_bytes(gradients) + 2 * size_bytes(parameters) + 2 * floats * sizeof(float));
}

double crowding(const Mesh& mesh, const HostCosts& costs, std::size_t threads) {
  if (costs.processors <= 0) return 1;
  const std::size_t workers = costs.one_host ? mesh.workers() : mesh.workers_per_host;
  return std::max(1.0, static_cast<double>(workers * threads) / costs.processors);
}

double TimedJob::update_s(double elements) const {
  return elements * update_bytes_per_element(job, work.layout.parameter_type, work.layout.gradient_type) *
         costs.update_s_per_byte * crowding(mesh, costs, 1);
}

namespace {

class Nothing final : public TimedExchange {
 public:
  explicit Nothing(const TimedJob& job)
      : update_s_(job.update_s(static_cast<double>(job.work.layout.trained_elements()))) {}
  double finish(double now) override { return now + update_s_; }

 private:
  const double update_s_;
};

std::unique_ptr<TimedExchange> make_exchange(const TimedJob& job) {
  if (job.kind.ring) return make_timed_ring(job);
  return std::make_unique<Nothing>(job);
}

/// Walks through a worker's step, as worker::Walk does.
class TimedWalk {
 public:
  /// `factor`: by which computing takes longer; `more_s`: time that is added to each pass of a layer.
  TimedWalk(const TimedJob& job, TimedExchange& exchange, double factor, double more_s)
      : work_(job.work), exchange_(exchange), factor_(factor), more_s_(more_s) {}

  double step(double now) {
    exchange_.begin_step();
    for (std::size_t micro = 0; micro < work_.micro_batches; ++micro) {
      for (std::size_t layer = 0; layer < work_.layers.size(); ++layer) now = forward(layer, now);
      for (std::size_t layer = work_.layers.size(); layer-- > work_.first_trained_layer;)
        now = backward(layer, micro + 1 == work_.micro_batches, now);
    }
    return exchange_.finish(now);
  }

 private:
  double forward(std::size_t layer, double now) {
    const std::size_t unit = work_.layers[layer].unit;
    const bool has_unit = unit != worker::kNoUnit;
    if (has_unit && work_.unit_layers[unit].begin == layer) now = exchange_.acquire(unit, Pass::forward, now);
    now += work_.layers[layer].forward_s * factor_ + more_s_;
    if (has_unit && work_.unit_layers[unit].end == layer + 1) exchange_.release(unit, Pass::forward);
    return now;
  }
  double backward(std::size_t layer, bool last_micro, double now) {
    const std::size_t unit = work_.layers[layer].unit;
    const bool has_unit = unit != worker::kNoUnit;
    const Range layers = has_unit ? work_.backward_layers[unit] : Range{};
    if (has_unit && !layers.empty() && layers.end == layer + 1) {
      now = exchange_.acquire(unit, Pass::backward, now);
      if (work_.layout.units[unit].trained) now = exchange_.open(unit, now);
    }
    now += work_.layers[layer].backward_s * factor_ + more_s_;
    if (has_unit && !layers.empty() && layers.begin == layer) exchange_.release(unit, Pass::backward);
    if (has_unit && work_.layout.units[unit].trained && work_.unit_layers[unit].begin == layer)
      exchange_.ready(unit, last_micro, now);
    return now;
  }

  const Workload& work_;
  TimedExchange& exchange_;
  const double factor_;
  const double more_s_;
};

constexpr std::array<const char*, static_cast<std::size_t>(StepStation::count)> kNames{
    "link within host", "worker link", "worker link", "server link", "server link", "server", "processors"};

void name_bound(StepEstimate& step, const std::array<double, kNames.size()>& busy) {
  std::size_t most = 0;
  step.link_s = 0;
  for (std::size_t station = 0; station < busy.size(); ++station) {
    if (busy[station] > busy[most]) most = station;
    if (station > static_cast<std::size_t>(StepStation::within) &&
        station < static_cast<std::size_t>(StepStation::server))
      step.link_s = std::max(step.link_s, busy[station]);
  }
  if (busy[most] >= step.step_s / 2 && busy[most] >= step.compute_s) {
    step.bound = kNames[most];
    step.bound_s = busy[most];
  } else if (step.compute_s >= step.step_s / 2) {
    step.bound = "compute";
    step.bound_s = step.compute_s;
  } else {
    step.bound = "latency";
    step.bound_s = std::max(0.0, step.step_s - step.compute_s);
  }
}

bool sleeps(const JobOptions& job) { return job.compute != "model"; }

using Busy = std::array<double, kNames.size()>;

/// The period of a step once all queues are as they stay, and the time for which each station is busy in it.
double period_of(const TimedJob& job, Stations& stations, double factor, double more_s, Busy& busy) {
  if (job.kind.servers) {
    WorkerActions actions(job);
    TimedWalk(job, actions, factor, more_s).step(0);
    const ServedPeriod period = served_period(job, actions.all());
    busy = period.busy_s;
    return period.step_s;
  }
  constexpr std::size_t kWarmUp = 3;
  constexpr std::size_t kMeasured = 2;
  const std::unique_ptr<TimedExchange> exchange = make_exchange(job);
  TimedWalk walk(job, *exchange, factor, more_s);
  double now = 0;
  for (std::size_t step = 0; step < kWarmUp; ++step) now = walk.step(now);
  const double begin = now;
  for (std::size_t station = 0; station < busy.size(); ++station) busy[station] = -stations.busy(station);
  for (std::size_t step = 0; step < kMeasured; ++step) now = walk.step(now);
  for (std::size_t station = 0; station < busy.size(); ++station)
    busy[station] = (busy[station] + stations.busy(station)) / kMeasured;
  return (now - begin) / kMeasured;
}

}  // namespace

StepEstimate estimate_step(const JobOptions& job, const worker::StrategyKind& kind, const Workload& work,
                           const Mesh& mesh, const HostCosts& costs) {
  if (kind.servers && parse_consistency(job.consistency).each_push_updates)
    fail(ErrorKind::usage, "--consistency {}: the cost model is for bsp", job.consistency);
  const double slowest =
      expected_slowest(job) * (sleeps(job) ? 1 : expected_slowest(mesh.workers(), costs.deviation)) *
      (sleeps(job) || costs.device ? 1 : crowding(mesh, costs, std::max<std::size_t>(1, job.threads)));
  const double more_s = sleeps(job) ? costs.sleep_s : 0;
  Busy busy{};
  StepEstimate estimate;
  const auto run = [&](double factor) {
    Stations stations(static_cast<std::size_t>(StepStation::count));
    estimate.step_s = period_of({job, kind, work, mesh, costs, stations}, stations, factor, more_s, busy);
    name_bound(estimate, busy);
  };
  estimate.compute_s = work.compute_s() * slowest;
  run(slowest);
  // Communication takes memory and processors from computing, for the share of the step in which it runs.
  if (costs.slowdown > 1 && !kind.one_worker && !sleeps(job))
    run(slowest * (1 + (costs.slowdown - 1) * std::min(1.0, estimate.link_s / estimate.step_s)));
  estimate.exposed_s = std::max(0.0, estimate.step_s - estimate.compute_s);
  return estimate;
}

}  // namespace psring::bench
