#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {

/// After round k every rank knows that 2^(k+1) ranks have called the barrier.
Plan plan_barrier(const Planner& at) {
  Plan plan;
  for (std::size_t distance = 1; distance < at.ranks; distance *= 2) {
    plan.add(Action::Kind::send, at.next(distance), Range{}, plan.newest());
    plan.add(Action::Kind::receive, at.previous(distance), Range{});
  }
  return plan;
}

}  // namespace psring::ring
