#pragma once

#include <cstddef>

#include <psring/ring/plan/plan.h>

namespace psring::ring {

// The plans of all operations but all-reduce (algorithm.h). M: the bytes of the vector, n: the ranks. The plans of
// collectives are empty for one rank.

/// `direct`: each part goes straight to its owner, 1 latency; otherwise round the ring, n-1 latencies. (n-1)/n M bytes.
Plan plan_reduce_scatter(const Planner& planner, const Parts& parts, bool direct);
Plan plan_all_gather(const Planner& planner, const Parts& parts, bool direct);
/// `tree`: a binomial tree, log2 n latencies; otherwise along a chain, in segments, n-1 latencies.
Plan plan_broadcast(const Planner& planner, std::size_t count, std::size_t root, bool tree);
/// Dissemination: log2 n latencies, no payload.
Plan plan_barrier(const Planner& planner);
/// Plans one side of a send and recv; `kind`: send or receive.
Plan plan_message(const Planner& planner, std::size_t count, Action::Kind kind, std::size_t peer);

/// The two halves of a ring all-reduce. `after_reduce`: the plan ends with a reduce-scatter of the same parts.
void add_ring_reduce_scatter(Plan& plan, const Planner& planner, const Parts& parts);
void add_ring_all_gather(Plan& plan, const Planner& planner, const Parts& parts, bool after_reduce);

}  // namespace psring::ring
