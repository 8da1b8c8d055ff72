#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <psring/common/base/text/json.h>

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

/// Returns from metrics.jsonl
///   loss:        {step, time_s, loss, steps}: columns of at most 400 points, each the mean over the workers' samples
///   and
///                over a group of steps; `steps` is the number of steps before grouping. time_s begins with the first
///                step, and is the slowest worker's.
///   staleness:   {worker: {step, staleness}}: columns of at most 200 points, each the mean over a group of steps; null
///   if
///                no worker missed an update.
///   lag:         {worker: {time_s, lag}}, as lag_columns returns them; null if `staleness` is null.
///   evaluations: {step, time_s, test_loss, test_accuracy, test_perplexity}: columns over all workers; null if the
///                model has no such figure. Also a column test_NAME for each metric of the model itself.
/// If workers repeated a step after a loss, the repetition counts.
Json metrics_series(const std::filesystem::path& file);

/// Returns from memory.jsonl, by process, {time_s, booked, rss, pss}: columns of at most 100 points, each the largest
/// of a group of lines. time_s begins with the first line of the file.
Json memory_series(const std::filesystem::path& file);

}  // namespace psring::view
