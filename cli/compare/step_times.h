#pragma once

#include <optional>
#include <vector>

#include <psring/cli/compare/bound.h>

namespace psring::cli {

/// The parts of a worker's step: medians over its steps.
struct WorkerTimes {
  double busy_s = 0;     ///< not waiting for communication
  double exposed_s = 0;  ///< waiting for communication
  double delay_s = 0;    ///< ready to run, but without a processor; mean
  /// Share of the worker's time without a processor; nothing if the kernel does not count it.
  std::optional<double> run_delay;
  std::optional<double> processors_used = std::nullopt;  ///< by the worker's process, on average
};

/// Adds the workers' part of the figures of a step. `runs` has the workers of each run, by rank. The figures are
/// medians over runs of each worker, then the slowest worker and the others.
void add_worker_times(StepFigures& step, const std::vector<std::vector<WorkerTimes>>& runs);

}  // namespace psring::cli
