#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <psring/bench/cost/timed_job.h>
#include <psring/bench/cost/worker_actions.h>

namespace psring::bench {

/// A step of workers and servers in steady state.
struct ServedPeriod {
  double step_s = 0;
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy_s{};  ///< of the busiest station of a kind
};

/// Plays some steps of all workers and servers of a job, frame by frame as ClientProtocol and Shard exchange them, and
/// returns the time of a step. `step`: the actions of each worker.
ServedPeriod served_period(const TimedJob& job, const std::vector<WorkerAction>& step);

}  // namespace psring::bench
