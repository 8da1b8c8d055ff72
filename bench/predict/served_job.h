#pragma once

#include <vector>

#include <psring/bench/predict/timed_job.h>
#include <psring/bench/predict/worker_actions.h>

namespace psring::bench {

/// Plays some steps of all workers and servers of a job, frame by frame as ClientProtocol and Shard exchange them, and
/// returns the time of a step. `step`: the actions of each worker.
TimedPeriod served_period(const TimedJob& job, const std::vector<WorkerAction>& step);

}  // namespace psring::bench
