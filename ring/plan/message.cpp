#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {

Plan plan_message(const Planner& at, std::size_t count, Action::Kind kind, std::size_t peer) {
  Plan plan;
  plan.add(kind, peer, at.cut(Range{0, count}));
  if (count == 0) plan.add(kind, peer, Range{});  // an empty message still travels
  return plan;
}

}  // namespace psring::ring
