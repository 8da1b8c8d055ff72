#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/power_of_two.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// Recursive doubling: in round k the ranks that differ in bit k exchange all they have and merge it. Ranks beyond the
/// largest power of two hand their vector to a partner, and get the result back.
Plan plan_doubling(const Planner& at, std::size_t count) {
  Plan plan;
  const std::vector<Range> whole = at.cut(Range{0, count});
  const PowerOfTwo core(at);
  if (core.is_beyond()) return core.plan_beyond(whole);
  core.add_partner(plan, whole);
  for (std::size_t bit = 1; bit < core.ranks; bit *= 2) {
    plan.add(Kind::send, at.rank ^ bit, whole, plan.newest());
    plan.add(Kind::merge, at.rank ^ bit, whole, Action::kAtOnce, 2 * bit == core.ranks);
  }
  core.add_answer(plan, whole, plan.newest());
  return plan;
}

}  // namespace

constinit const Algorithm Algorithm::doubling{
    "doubling", plan_doubling, [](std::size_t ranks) { return PowerOfTwo::rounds(ranks) + PowerOfTwo::extra(ranks); },
    true};

}  // namespace psring::ring
