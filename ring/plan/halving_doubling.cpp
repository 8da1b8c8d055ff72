#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/power_of_two.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;

/// Recursive halving, then recursive doubling (R. Rabenseifner, "Optimization of Collective Reduction Operations",
/// 2004): in each round of the first half a rank sends one half of its range to its partner, which continues with it,
/// and reduces the other half; the second half runs the same rounds backwards, as a gather.
Plan plan_halving_doubling(const Planner& at, std::size_t count) {
  Plan plan;
  const std::vector<Range> whole = at.cut(Range{0, count});
  const PowerOfTwo core(at);
  if (core.is_beyond()) return core.plan_beyond(whole);
  core.add_partner(plan, whole);
  const auto elements = [&](std::size_t first, std::size_t last) {
    return at.cut(Range{first * count / core.ranks, last * count / core.ranks});
  };
  std::size_t low = 0;  // ranks [low, low + width) share this rank's present range
  std::size_t ready = plan.newest();
  const auto receive = [&](Kind kind, std::size_t from, const std::vector<Range>& pieces, bool last) {
    plan.add(kind, from, pieces, Action::kAtOnce, last);
    if (!pieces.empty()) ready = plan.newest();
  };
  for (std::size_t width = core.ranks; width > 1; width /= 2) {
    const std::size_t half = width / 2;
    const bool upper = (at.rank & half) != 0;
    const std::size_t with = at.rank ^ half;
    const std::size_t mine = upper ? low + half : low;
    const std::size_t theirs = upper ? low : low + half;
    plan.add(Kind::send, with, elements(theirs, theirs + half), ready);
    receive(Kind::reduce, with, elements(mine, mine + half), half == 1);
    low = mine;
  }
  for (std::size_t half = 1; half < core.ranks; half *= 2) {
    const std::size_t with = at.rank ^ half;
    const std::size_t mine = at.rank & ~(half - 1);
    const std::size_t theirs = mine ^ half;
    plan.add(Kind::send, with, elements(mine, mine + half), ready);
    receive(Kind::receive, with, elements(theirs, theirs + half), false);
  }
  core.add_answer(plan, whole, ready);
  return plan;
}

}  // namespace

constinit const Algorithm Algorithm::halving_doubling{"halving-doubling", plan_halving_doubling, [](std::size_t ranks) {
                                                        return 2 * PowerOfTwo::rounds(ranks) + PowerOfTwo::extra(ranks);
                                                      }};

}  // namespace psring::ring
