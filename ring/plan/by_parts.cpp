#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// Adds one step of the ring: `out` leaves for the next rank, `in` arrives from the previous one. `came`: the first
/// action of the previous step, which received the range that leaves now. Returns the first receiving action of this
/// step.
std::size_t add_step(Plan& plan, const Planner& at, const std::vector<Range>& out, const std::vector<Range>& in,
                     std::size_t came, Kind kind, bool last) {
  for (std::size_t k = 0; k < out.size(); ++k)
    plan.add(Kind::send, at.next(), out[k], came == Action::kAtOnce ? came : came + k);
  const std::size_t first = plan.actions.size();
  plan.add(kind, at.previous(), in, Action::kAtOnce, last);
  return first;
}

}  // namespace

/// Step s: part r - 1 - s leaves, part r - 2 - s arrives and is added. After n - 1 steps part r is complete here.
void add_ring_reduce_scatter(Plan& plan, const Planner& at, const Parts& parts) {
  std::size_t came = Action::kAtOnce;
  for (std::size_t s = 0; s + 1 < at.ranks; ++s) {
    const auto out = at.cut(parts[(at.rank + 2 * at.ranks - 1 - s) % at.ranks]);
    const auto in = at.cut(parts[(at.rank + 2 * at.ranks - 2 - s) % at.ranks]);
    came = add_step(plan, at, out, in, came, Kind::reduce, s + 2 == at.ranks);
  }
}

/// Step s: part r - s leaves, part r - 1 - s arrives. The last actions of a reduce-scatter complete the part that
/// leaves first.
void add_ring_all_gather(Plan& plan, const Planner& at, const Parts& parts, bool after_reduce) {
  std::size_t came = after_reduce ? plan.actions.size() - at.cut(parts[at.rank]).size() : Action::kAtOnce;
  for (std::size_t s = 0; s + 1 < at.ranks; ++s) {
    const auto out = at.cut(parts[(at.rank + at.ranks - s) % at.ranks]);
    const auto in = at.cut(parts[(at.rank + 2 * at.ranks - 1 - s) % at.ranks]);
    came = add_step(plan, at, out, in, came, Kind::receive, false);
  }
}

Plan plan_reduce_scatter(const Planner& at, const Parts& parts, bool direct) {
  Plan plan;
  if (at.ranks == 1) return plan;
  if (!direct) {
    add_ring_reduce_scatter(plan, at, parts);
    return plan;
  }
  for (std::size_t i = 1; i < at.ranks; ++i) plan.add(Kind::send, at.next(i), at.cut(parts[at.next(i)]));
  for (const Range piece : at.cut(parts[at.rank])) {
    for (std::size_t r = 0; r < at.ranks; ++r)
      if (r != at.rank) plan.add(Kind::collect, r, piece);
    plan.add(Kind::combine, 0, piece);
  }
  return plan;
}

Plan plan_all_gather(const Planner& at, const Parts& parts, bool direct) {
  Plan plan;
  if (at.ranks == 1) return plan;
  if (!direct) {
    add_ring_all_gather(plan, at, parts, false);
    return plan;
  }
  for (std::size_t i = 1; i < at.ranks; ++i) plan.add(Kind::send, at.next(i), at.cut(parts[at.rank]));
  for (std::size_t i = 1; i < at.ranks; ++i) plan.add(Kind::receive, at.previous(i), at.cut(parts[at.previous(i)]));
  return plan;
}

}  // namespace psring::ring
