#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// Each rank receives from the rank before it, and passes each piece on at once. `place`: the distance from the root.
Plan plan_chain(const Planner& at, std::size_t place, const std::vector<Range>& pieces) {
  Plan plan;
  for (const Range piece : pieces) {
    if (place > 0) plan.add(Kind::receive, at.previous(), piece);
    const std::size_t after = place > 0 ? plan.newest() : Action::kAtOnce;
    if (place + 1 < at.ranks) plan.add(Kind::send, at.next(), piece, after);
  }
  return plan;
}

/// In each round the ranks that have the vector send it to the rank `distance` further on; the distance doubles.
Plan plan_tree(const Planner& at, std::size_t place, const std::vector<Range>& pieces) {
  Plan plan;
  std::size_t after = Action::kAtOnce;
  for (std::size_t distance = 1; distance < at.ranks; distance *= 2) {
    if (place < distance) {
      if (place + distance < at.ranks) plan.add(Kind::send, at.next(distance), pieces, after);
    } else if (place < 2 * distance) {
      plan.add(Kind::receive, at.previous(distance), pieces);
      if (!pieces.empty()) after = plan.newest();
    }
  }
  return plan;
}

}  // namespace

Plan plan_broadcast(const Planner& at, std::size_t count, std::size_t root, bool tree) {
  if (at.ranks == 1) return {};
  const std::size_t place = at.previous(root);
  const std::vector<Range> pieces = at.cut(Range{0, count});
  return tree ? plan_tree(at, place, pieces) : plan_chain(at, place, pieces);
}

}  // namespace psring::ring
