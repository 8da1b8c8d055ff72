#pragma once

#include <cstdint>
#include <string>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::worker {

/// The weights by which units are cut among the servers of a job. Even, unless servers are mixed (--servers mixed:K):
/// then a step's bytes take the least time if every process has a network card of the same rate. With n workers, K
/// standalone servers, and H and L the larger and the smaller of a worker's pushed and pulled bytes, a colocated server
/// weighs (n - K) H and a standalone server (n - 1) (H + L). For H = L this is the optimum of BytePS (Jiang et al.,
/// OSDI 2020, section 3.1). docs/formulas.md derives it. L / H is rounded to 64ths. If (n - 1) L < H, colocated servers
/// alone would take less time.
/// REQUIRES: `pushed` and `pulled` are positive.
CutWeights server_weights(const JobOptions& job, std::uint64_t pushed, std::uint64_t pulled);

/// The same for the bytes that a strategy pushes and pulls in a step with the layout's types, before compression.
CutWeights server_weights(const JobOptions& job, const StrategyKind& kind, const Layout& layout);

/// "each of 2 servers holds 334336", or with mixed servers "each of 4 colocated servers holds about 1000, each of 2
/// standalone servers about 3000".
std::string describe_shares(const JobOptions& job, const Layout& layout);

}  // namespace psring::worker
