#include <psring/ring/plan/algorithm.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// All ranks send to rank 0, which reduces in rank order and sends the result back.
Plan plan_star(const Planner& at, std::size_t count) {
  Plan plan;
  const std::vector<Range> whole = at.cut(Range{0, count});
  if (at.rank != 0) {
    plan.add(Kind::send, 0, whole);
    plan.add(Kind::receive, 0, whole);
    return plan;
  }
  for (const Range piece : whole) {
    for (std::size_t r = 1; r < at.ranks; ++r) plan.add(Kind::reduce, r, piece, Action::kAtOnce, r + 1 == at.ranks);
    const std::size_t reduced = plan.newest();
    for (std::size_t r = 1; r < at.ranks; ++r) plan.add(Kind::send, r, piece, reduced);
  }
  return plan;
}

}  // namespace

constinit const Algorithm Algorithm::star{"star", plan_star, [](std::size_t) { return std::size_t{2}; }};

}  // namespace psring::ring
