#include <algorithm>

#include <psring/ring/plan/plan.h>

namespace psring::ring {

void Plan::add(Action::Kind kind, std::size_t peer, const std::vector<Range>& pieces, std::size_t after, bool last) {
  for (const Range piece : pieces) add(kind, peer, piece, after, last);
}

std::uint64_t Plan::sum(bool sends) const {
  std::uint64_t elements = 0;
  for (const Action& action : actions)
    if (action.kind != Action::Kind::combine && (action.kind == Action::Kind::send) == sends)
      elements += action.range.size();
  return elements;
}

std::vector<Range> Planner::cut(Range range) const {
  std::vector<Range> pieces;
  for (std::size_t begin = range.begin; begin < range.end; begin += segment)
    pieces.push_back({begin, std::min(begin + segment, range.end)});
  return pieces;
}

std::vector<Range> Planner::cut(const std::vector<Range>& ranges) const {
  std::vector<Range> pieces;
  for (const Range range : ranges)
    for (const Range piece : cut(range)) pieces.push_back(piece);
  return pieces;
}

}  // namespace psring::ring
