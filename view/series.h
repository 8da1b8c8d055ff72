#pragma once

#include <filesystem>

#include <psring/common/base/json.h>

namespace psring::view {

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
///                model has no such figure.
/// If workers repeated a step after a loss, the repetition counts.
Json metrics_series(const std::filesystem::path& file);

/// Returns from memory.jsonl, by process, {time_s, booked, rss, pss}: columns of at most 100 points, each the largest
/// of a group of lines. time_s begins with the first line of the file.
Json memory_series(const std::filesystem::path& file);

}  // namespace psring::view
