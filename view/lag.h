#pragma once

#include <cstdint>
#include <vector>

#include <psring/common/base/json.h>

namespace psring::view {

/// The end of a worker's step. `time_s` is on the worker's own clock.
struct StepEnd {
  std::uint64_t membership = 0;
  std::uint64_t worker = 0;
  std::uint64_t step = 0;
  double time_s = 0;
  double step_s = 0;
};

/// Returns {worker: {time_s, lag}}: columns of at most 200 points, each the largest lag of a group of steps. The lag of
/// a worker at the end of its step is the number of the step minus the steps that the slowest worker has made: what
/// servers record. The workers' clocks are brought together by their first steps in a membership, which begin when all
/// have met; an error of some milliseconds remains. A worker that has made all its steps is never the slowest.
Json lag_columns(const std::vector<StepEnd>& ends);

}  // namespace psring::view
