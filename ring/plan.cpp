#include <algorithm>
#include <array>
#include <bit>

#include <psring/common/base/error.h>
#include <psring/ring/plan.h>

namespace psring::ring {
namespace {

using Kind = Action::Kind;
constexpr std::array<std::string_view, 5> kNames = {"exchange", "doubling", "halving-doubling", "ring", "star"};

std::uint32_t peer(std::size_t rank) { return static_cast<std::uint32_t>(rank); }

}  // namespace

std::string_view to_string(Algorithm algorithm) { return kNames[static_cast<std::size_t>(algorithm)]; }

std::size_t latencies(Algorithm algorithm, std::size_t ranks) {
  if (ranks < 2) return 0;
  const auto rounds = static_cast<std::size_t>(std::bit_width(ranks) - 1);
  // Ranks beyond a power of two give theirs to a neighbour before, and get it back after.
  const std::size_t beyond = std::has_single_bit(ranks) ? 0 : 2;
  switch (algorithm) {
    case Algorithm::exchange:
      return 1;
    case Algorithm::star:
      return 2;
    case Algorithm::ring:
      return 2 * (ranks - 1);
    case Algorithm::halving_doubling:
      return 2 * rounds + beyond;
    case Algorithm::doubling:
      return rounds + beyond;
  }
  return 0;
}

Algorithm parse_algorithm(const char* flag, const std::string& name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Algorithm>(i);
  fail(ErrorKind::usage, "{}: expected auto, direct, exchange, doubling, halving-doubling, ring or star, got '{}'",
       flag, name);
}

std::uint64_t Plan::sum(bool sends) const {
  std::uint64_t elements = 0;
  for (const Action& action : actions)
    if (action.kind != Kind::combine && (action.kind == Kind::send) == sends) elements += action.range.size();
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

Plan Planner::all_reduce(Algorithm algorithm, std::size_t count) const {
  Plan plan;
  if (ranks == 1 || count == 0) return plan;
  switch (algorithm) {
    case Algorithm::exchange:
      add_exchange(plan, count);
      break;
    case Algorithm::doubling:
      add_doubling(plan, count);
      break;
    case Algorithm::halving_doubling:
      add_halving_doubling(plan, count);
      break;
    case Algorithm::ring: {
      const Parts parts = even_parts(count, ranks);
      add_ring_reduce_scatter(plan, parts);
      add_ring_all_gather(plan, parts, true);
      break;
    }
    case Algorithm::star:
      add_star(plan, count);
      break;
  }
  return plan;
}

Plan Planner::reduce_scatter(const Parts& parts, bool direct) const {
  Plan plan;
  if (ranks == 1) return plan;
  if (!direct) {
    add_ring_reduce_scatter(plan, parts);
    return plan;
  }
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t to = (rank + i) % ranks;
    for (const Range piece : cut(parts[to])) plan.actions.push_back({Kind::send, peer(to), piece});
  }
  for (const Range piece : cut(parts[rank])) {
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != rank) plan.actions.push_back({Kind::collect, peer(r), piece});
    plan.actions.push_back({Kind::combine, 0, piece});
  }
  return plan;
}

Plan Planner::all_gather(const Parts& parts, bool direct) const {
  Plan plan;
  if (ranks == 1) return plan;
  if (!direct) {
    add_ring_all_gather(plan, parts, false);
    return plan;
  }
  for (std::size_t i = 1; i < ranks; ++i)
    for (const Range piece : cut(parts[rank])) plan.actions.push_back({Kind::send, peer((rank + i) % ranks), piece});
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t from = (rank + ranks - i) % ranks;
    for (const Range piece : cut(parts[from])) plan.actions.push_back({Kind::receive, peer(from), piece});
  }
  return plan;
}

/// Step s: part r - 1 - s goes on, part r - 2 - s comes and is added; after n - 1 steps part r is whole here.
void Planner::add_ring_reduce_scatter(Plan& plan, const Parts& parts) const {
  const std::size_t next = (rank + 1) % ranks;
  const std::size_t before = (rank + ranks - 1) % ranks;
  std::size_t came = Action::kAtOnce;  // the first action of the step before
  for (std::size_t s = 0; s + 1 < ranks; ++s) {
    const auto out = cut(parts[(rank + 2 * ranks - 1 - s) % ranks]);
    const auto in = cut(parts[(rank + 2 * ranks - 2 - s) % ranks]);
    for (std::size_t k = 0; k < out.size(); ++k)
      plan.actions.push_back({Kind::send, peer(next), out[k], came == Action::kAtOnce ? came : came + k});
    came = plan.actions.size();
    for (const Range piece : in)
      plan.actions.push_back({Kind::reduce, peer(before), piece, Action::kAtOnce, s + 2 == ranks});
  }
}

/// Step s: part r - s goes on, part r - 1 - s comes. After a reduce-scatter its last step's actions are at the end.
void Planner::add_ring_all_gather(Plan& plan, const Parts& parts, bool after_reduce) const {
  const std::size_t next = (rank + 1) % ranks;
  const std::size_t before = (rank + ranks - 1) % ranks;
  std::size_t came = after_reduce ? plan.actions.size() - cut(parts[rank]).size() : Action::kAtOnce;
  for (std::size_t s = 0; s + 1 < ranks; ++s) {
    const auto out = cut(parts[(rank + ranks - s) % ranks]);
    const auto in = cut(parts[(rank + 2 * ranks - 1 - s) % ranks]);
    for (std::size_t k = 0; k < out.size(); ++k)
      plan.actions.push_back({Kind::send, peer(next), out[k], came == Action::kAtOnce ? came : came + k});
    came = plan.actions.size();
    for (const Range piece : in) plan.actions.push_back({Kind::receive, peer(before), piece});
  }
}

/// In round k the ranks that differ in bit k swap all they have. Ranks beyond a power of two as below.
void Planner::add_doubling(Plan& plan, std::size_t count) const {
  const std::size_t core = std::bit_floor(ranks);
  const std::vector<Range> whole = cut(Range{0, count});
  const auto add = [&](Kind kind, std::size_t with, bool last = false) {
    const std::size_t ready = plan.actions.empty() ? Action::kAtOnce : plan.actions.size() - 1;
    for (const Range piece : whole)
      plan.actions.push_back({kind, peer(with), piece, kind == Kind::send ? ready : Action::kAtOnce, last});
  };
  if (rank >= core) {
    add(Kind::send, rank - core);
    add(Kind::receive, rank - core);
    return;
  }
  const bool has_partner = rank + core < ranks;
  if (has_partner) add(Kind::reduce, rank + core, core == 1);
  for (std::size_t bit = 1; bit < core; bit *= 2) {
    add(Kind::send, rank ^ bit);
    add(Kind::merge, rank ^ bit, 2 * bit == core);
  }
  if (has_partner) add(Kind::send, rank + core);
}

/// Rabenseifner's: where n is no power of two, the ranks beyond it hand their vector to a partner and get the result.
void Planner::add_halving_doubling(Plan& plan, std::size_t count) const {
  const std::size_t core = std::bit_floor(ranks);
  const std::vector<Range> whole = cut(Range{0, count});
  const auto add = [&](Kind kind, std::size_t with, const std::vector<Range>& pieces, std::size_t after, bool last) {
    for (const Range piece : pieces) plan.actions.push_back({kind, peer(with), piece, after, last});
  };
  const auto newest = [&] { return plan.actions.empty() ? Action::kAtOnce : plan.actions.size() - 1; };
  if (rank >= core) {
    add(Kind::send, rank - core, whole, Action::kAtOnce, false);
    add(Kind::receive, rank - core, whole, Action::kAtOnce, false);
    return;
  }
  const bool has_partner = rank + core < ranks;
  if (has_partner) add(Kind::reduce, rank + core, whole, Action::kAtOnce, core == 1);
  const auto elements = [&](std::size_t first, std::size_t last) {
    return cut(Range{first * count / core, last * count / core});
  };
  std::size_t low = 0;  // ranks [low, low + width) share the range that is ours
  std::size_t ready = newest();
  for (std::size_t width = core; width > 1; width /= 2) {
    const std::size_t half = width / 2;
    const bool upper = (rank & half) != 0;
    const std::size_t with = rank ^ half;
    const std::size_t mine = upper ? low + half : low;
    const std::size_t theirs = upper ? low : low + half;
    add(Kind::send, with, elements(theirs, theirs + half), ready, false);
    const std::size_t size = plan.actions.size();
    add(Kind::reduce, with, elements(mine, mine + half), Action::kAtOnce, half == 1);
    if (plan.actions.size() > size) ready = newest();
    low = mine;
  }
  for (std::size_t half = 1; half < core; half *= 2) {
    const std::size_t with = rank ^ half;
    const std::size_t mine = rank & ~(half - 1);
    const std::size_t theirs = mine ^ half;
    add(Kind::send, with, elements(mine, mine + half), ready, false);
    const std::size_t size = plan.actions.size();
    add(Kind::receive, with, elements(theirs, theirs + half), Action::kAtOnce, false);
    if (plan.actions.size() > size) ready = newest();
  }
  if (has_partner) add(Kind::send, rank + core, whole, ready, false);
}

void Planner::add_star(Plan& plan, std::size_t count) const {
  for (const Range piece : cut(Range{0, count})) {
    if (rank != 0) {
      plan.actions.push_back({Kind::send, 0, piece});
      continue;
    }
    for (std::size_t r = 1; r < ranks; ++r)
      plan.actions.push_back({Kind::reduce, peer(r), piece, Action::kAtOnce, r + 1 == ranks});
    const std::size_t whole = plan.actions.size() - 1;
    for (std::size_t r = 1; r < ranks; ++r) plan.actions.push_back({Kind::send, peer(r), piece, whole});
  }
  if (rank != 0)
    for (const Range piece : cut(Range{0, count})) plan.actions.push_back({Kind::receive, 0, piece});
}

void Planner::add_exchange(Plan& plan, std::size_t count) const {
  for (const Range piece : cut(Range{0, count})) {
    for (std::size_t i = 1; i < ranks; ++i) plan.actions.push_back({Kind::send, peer((rank + i) % ranks), piece});
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != rank) plan.actions.push_back({Kind::collect, peer(r), piece});
    plan.actions.push_back({Kind::combine, 0, piece});
  }
}

Plan Planner::broadcast(std::size_t count, std::size_t root, bool tree) const {
  Plan plan;
  if (ranks == 1) return plan;
  const std::size_t place = (rank + ranks - root) % ranks;
  const auto at = [&](std::size_t p) { return peer((p + root) % ranks); };
  const std::vector<Range> pieces = cut(Range{0, count});
  if (!tree) {
    for (const Range piece : pieces) {
      if (place > 0) plan.actions.push_back({Kind::receive, at(place - 1), piece});
      const std::size_t after = place > 0 ? plan.actions.size() - 1 : Action::kAtOnce;
      if (place + 1 < ranks) plan.actions.push_back({Kind::send, at(place + 1), piece, after});
    }
    return plan;
  }
  // Who has it sends to the rank `distance` further on, which doubles.
  std::size_t after = Action::kAtOnce;
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    if (place < distance) {
      if (place + distance < ranks)
        for (const Range piece : pieces) plan.actions.push_back({Kind::send, at(place + distance), piece, after});
    } else if (place < 2 * distance) {
      for (const Range piece : pieces) plan.actions.push_back({Kind::receive, at(place - distance), piece});
      if (!pieces.empty()) after = plan.actions.size() - 1;
    }
  }
  return plan;
}

/// Dissemination: after round k everyone knows of 2^(k+1) ranks.
Plan Planner::barrier() const {
  Plan plan;
  std::size_t after = Action::kAtOnce;
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    plan.actions.push_back({Kind::send, peer((rank + distance) % ranks), {}, after});
    plan.actions.push_back({Kind::receive, peer((rank + ranks - distance) % ranks), {}});
    after = plan.actions.size() - 1;
  }
  return plan;
}

}  // namespace psring::ring
