#pragma once

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

/// Returns the rows of docs/formulas.md for the payload bytes of a step:
///   {values: {n, A, Mg, Mp}, worker: {sent: FIGURE, received: FIGURE}, servers: the same for all servers together}
///   FIGURE: {text, bytes}; `text` has the names of `values`
/// A process with a worker and a server counts as worker. Null if the options have no such row: compression, groups,
/// sums within a host, replicas, fewer colocated servers than workers.
Json byte_formulas(const worker::StrategyKind& kind, const JobOptions& job, const Layout& layout);

}  // namespace psring::view
