#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <psring/bench/predict/closed_forms.h>
#include <psring/bench/predict/stations.h>
#include <psring/bench/predict/step_model.h>

namespace psring::bench {

/// All that a played job refers to.
struct TimedJob {
  const JobOptions& job;
  const worker::StrategyKind& kind;
  const Workload& work;
  const Mesh& mesh;
  const HostCosts& costs;

  std::size_t station(StepStation of) const { return static_cast<std::size_t>(of); }
  /// Work of all processes that share a host's processors, which goes on while the leg before does. `every_s`: the
  /// work of all processes of the job; `host_s`: those of the host with the most work. REQUIRES: costs.processors > 0.
  Leg processors(double every_s, double host_s) const {
    return {.station = station(StepStation::processors),
            .service_s = (costs.one_host ? every_s : host_s) / costs.processors,
            .streams = true};
  }
  /// The same for the frames of a collective of all workers, which share one host's processors.
  FrameWork shared_work(double every_s) const;
  /// Time of an update of some elements at each worker, by one thread each.
  double update_s(double elements) const;
};

/// Time of computing: `factor` times that of the workload, and `more_s` in each pass of a layer.
struct ComputePace {
  double factor = 1;
  double more_s = 0;
};

/// A step in steady state.
struct TimedPeriod {
  double step_s = 0;
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy_s{};  ///< of the busiest station of a kind
  std::vector<double> waited_s = {0};  ///< by stage: for messages of the stages before and after
};

/// Does a worker sleep while a layer is computed (--compute)?
inline bool sleeps(const JobOptions& job) { return job.compute != "model"; }

/// By how much the work of one thread of each worker takes longer because a host has too few processors.
double crowding(const Mesh& mesh, const HostCosts& costs, std::size_t threads);

/// Plays some steps of one worker of each stage: they stand for the workers of all copies of the model and of all
/// tensor ranks, which do the same at the same times. A job without a pipeline has one stage. Each stage acts in the
/// order of its plan (worker::plan_stage), and waits for the messages of its neighbours.
TimedPeriod pipeline_period(std::span<const TimedJob> stages, const ComputePace& pace);
/// Plays some steps of all workers and servers of a job, frame by frame as ClientProtocol and Shard exchange them.
TimedPeriod served_period(const TimedJob& job, const ComputePace& pace);

}  // namespace psring::bench
