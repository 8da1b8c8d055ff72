#pragma once

#include <bit>
#include <cstddef>
#include <vector>

#include <psring/ring/plan/plan.h>

namespace psring::ring {

/// Lets an algorithm for 2^k ranks serve any number of ranks. The core is the first 2^k ranks. Rank core + i hands its
/// vector to its partner, rank i, before the core starts, and gets the result from it at the end.
struct PowerOfTwo {
  explicit PowerOfTwo(const Planner& planner) : at(planner), ranks(std::bit_floor(planner.ranks)) {}

  const Planner& at;
  std::size_t ranks;  ///< of the core

  bool is_beyond() const { return at.rank >= ranks; }
  bool has_partner() const { return at.rank + ranks < at.ranks; }

  /// The whole plan of a rank beyond the core.
  Plan plan_beyond(const std::vector<Range>& whole) const {
    Plan plan;
    plan.add(Action::Kind::send, at.rank - ranks, whole);
    plan.add(Action::Kind::receive, at.rank - ranks, whole);
    return plan;
  }
  /// A rank of the core adds its partner's vector, if it has a partner.
  void add_partner(Plan& plan, const std::vector<Range>& whole) const {
    if (has_partner()) plan.add(Action::Kind::reduce, at.rank + ranks, whole, Action::kAtOnce, ranks == 1);
  }
  /// A rank of the core sends the result to its partner, if it has a partner.
  void add_answer(Plan& plan, const std::vector<Range>& whole, std::size_t after) const {
    if (has_partner()) plan.add(Action::Kind::send, at.rank + ranks, whole, after);
  }

  /// Rounds in which the core halves or doubles, and the latencies of the ranks beyond.
  static std::size_t rounds(std::size_t all) { return static_cast<std::size_t>(std::bit_width(all) - 1); }
  static std::size_t extra(std::size_t all) { return std::has_single_bit(all) ? 0 : 2; }
};

}  // namespace psring::ring
