#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/job.h>
#include <psring/worker/registries.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

// The parts of a report that view/collect.cpp puts together; each has a source of its name.

/// Returns the options of a job, run.json's `job`; nothing if another version of psring wrote them in another form.
std::optional<JobOptions> read_job(const Json& job);

/// Returns the units that a job trains, as its strategy divides them; nothing if this program does not have the job's
/// model or strategy, or if the options do not give the number of owners (--shard-group host).
std::optional<Layout> job_layout(const JobOptions& job, const worker::Registries& registries);

/// Returns the units of the whole model of a job in a mesh, [{name, elements, stages}]: the stages that have layers of
/// the unit, ascending. Null if this program does not have the job's model.
Json mesh_units(const JobOptions& job, const worker::Registries& registries);

/// Returns the rows of docs/formulas.md for the payload bytes of a step:
///   {values: {n, A, Mg, Mp}, worker: {sent: FIGURE, received: FIGURE}, servers: the same for all servers together}
///   FIGURE: {text, bytes}; `text` has the names of `values`
/// A process with a worker and a server counts as worker. Null if the options have no such row: compression, groups,
/// sums within a host, replicas, fewer colocated servers than workers.
Json byte_formulas(const worker::StrategyKind& kind, const JobOptions& job, const Layout& layout);

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

/// Returns the rows of comparisons that differ in one option only, as lines of figures over that option:
///   [{source, option, series: [{label, x, value, rows, step_s, least_s, most_s, predicted_s, link_s, memory}]}]
///   memory: {measured, predicted, formula, limit, ratio} or null
/// `rows` are those of `collect`. `option` is workers, servers, bucket_bytes, global_batch, threads, accumulate or link
/// (x is the rate in bits a second). Columns have a value or null for each point. predicted_s is the time of computing
/// and the predicted exposed communication; link_s is the time that the busiest link alone needs. `memory` has the
/// parameters, gradients and optimizer state of the worker that holds most of them; `formula` is [[n, bytes]], `limit`
/// the bytes for n without end, and `ratio` by how much less that is than one process that holds everything (null if
/// the limit is 0: n times). A series has at least two points.
Json sweeps(const Json& rows);

/// Returns the command that tries what a comparison or a run advises for one of its rows: its own command, with the
/// first option of the advice changed, and this row's value in place of each list. An option that should become larger
/// or smaller is doubled or halved. Empty if the advice names no option, or the option cannot be changed so.
std::vector<std::string> next_command(const std::vector<std::string>& command, const Json& job,
                                      const std::string& advice);

}  // namespace psring::view
