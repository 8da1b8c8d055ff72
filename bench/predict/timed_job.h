#pragma once

#include <array>
#include <cstddef>
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
  Stations& stations;

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

}  // namespace psring::bench
