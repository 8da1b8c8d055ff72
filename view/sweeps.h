#pragma once

#include <psring/common/base/text/json.h>

namespace psring::view {

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

}  // namespace psring::view
