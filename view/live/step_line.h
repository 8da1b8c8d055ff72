#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace psring::view {

/// A line of metrics.jsonl about one step of one worker.
struct StepLine {
  std::uint32_t worker = 0;
  std::uint64_t membership = 0;
  std::uint64_t step = 0;
  double time_s = 0;           ///< on the worker's own clock
  std::optional<double> loss;  ///< nothing if it is not finite
  double samples = 0;
  double step_s = 0;
  double compute_s = 0;
  double exposed_s = 0;
  double bubble_s = 0;  ///< the part of exposed_s in which a pipeline's stage waited for other stages
  double staleness = 0;
};

/// Reads a line, or returns nothing if it is not a JSON object with the numbers `worker`, `step`, `time_s` and
/// `step_s`. Fields with other names are skipped, and not checked closely: a busy run writes thousands of lines in a
/// second, which a complete parser takes too long to read.
std::optional<StepLine> read_step_line(std::string_view line);

}  // namespace psring::view
