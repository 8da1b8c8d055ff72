#pragma once

#include <filesystem>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns figures of a run's folder of recorded events; null if there is no folder or it holds no step:
///   {step, duration_s, slices: [[process, kind, unit, begin, duration]], transfers: [[process, name, begin, duration,
///   bytes]], whole_units: {process: {at, parameters, gradients}}, arrows: [[operation, from, left, to, arrived]],
///   left_out, workers: [{process, steps, step_s, forward_s, backward_s, update_s, waiting_s, hidden_s, in_flight_s}],
///   waits}
/// `workers` has medians over the steps whose details are recorded, and `waits`, those of WaitTimes, means; everything
/// else is of one of these steps, whose duration is nearest to the median of all steps. Times of this step are seconds
/// since its first worker began it. `kind` is forward, backward, update, wait, serve (a server's work for a message) or
/// device (a GPU's work). hidden_s is the time in which a transfer was in flight and the worker computed. `left_out`
/// counts events beyond the most that a page draws.
Json trace_figures(const std::filesystem::path& folder);

}  // namespace psring::view
