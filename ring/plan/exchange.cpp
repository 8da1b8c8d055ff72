#include <psring/ring/plan/algorithm.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// Every rank sends its vector to all others, and reduces all vectors in rank order.
Plan plan_exchange(const Planner& at, std::size_t count) {
  Plan plan;
  for (const Range piece : at.cut(Range{0, count})) {
    for (std::size_t i = 1; i < at.ranks; ++i) plan.add(Kind::send, at.next(i), piece);
    for (std::size_t r = 0; r < at.ranks; ++r)
      if (r != at.rank) plan.add(Kind::collect, r, piece);
    plan.add(Kind::combine, 0, piece);
  }
  return plan;
}

}  // namespace

constinit const Algorithm Algorithm::exchange{"exchange", plan_exchange, [](std::size_t) { return std::size_t{1}; },
                                              true};

}  // namespace psring::ring
