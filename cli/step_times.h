#pragma once

#include <optional>
#include <vector>

#include <psring/cli/bound.h>

namespace psring::cli {

/// How a worker spends a step: medians over its steps.
struct WorkerTimes {
  double busy_s = 0;     ///< not waiting for communication
  double exposed_s = 0;  ///< waiting for communication
  double delay_s = 0;    ///< ready to run, but without a processor; mean
  /// Share of its time that it had no processor; nothing where the kernel does not count it.
  std::optional<double> run_delay;
};

/// The workers' part of the figures of a step, from the workers by rank: the median over runs of each worker, then the
/// slowest of them and the others.
void add_worker_times(StepFigures& step, const std::vector<std::vector<WorkerTimes>>& runs);

}  // namespace psring::cli
