#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {
namespace {

/// A reduce-scatter round the ring, then an all-gather.
Plan plan_ring(const Planner& at, std::size_t count) {
  Plan plan;
  const Parts parts = even_parts(count, at.ranks);
  add_ring_reduce_scatter(plan, at, parts);
  add_ring_all_gather(plan, at, parts, true);
  return plan;
}

}  // namespace

constinit const Algorithm Algorithm::ring{"ring", plan_ring, [](std::size_t ranks) { return 2 * (ranks - 1); }};

}  // namespace psring::ring
