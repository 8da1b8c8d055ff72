#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/ring/collective.h>

namespace psring::ring {

/// One action of one rank in an operation, as index arithmetic: no data, no sockets, no time.
///
/// Sends leave in their order, each one once the action named by `after` is done. All other actions run in their order:
/// a message that arrives early waits for its turn, so that a rerun gives the same bits. The k-th message from one rank
/// to another belongs to the k-th receiving action that names the sender.
struct Action {
  enum class Kind : std::uint8_t {
    send,
    receive,  ///< the message replaces the range
    reduce,   ///< range = op(range, message)
    merge,    ///< as reduce, for a range that was sent before: at both ranks the lower rank's is the first operand
    collect,  ///< the message is kept for `combine`
    combine,  ///< range = op over all ranks, in rank order, of the collected messages and this rank's range
  };
  static constexpr std::size_t kAtOnce = static_cast<std::size_t>(-1);

  Kind kind = Kind::send;
  std::uint32_t peer = 0;
  Range range;
  std::size_t after = kAtOnce;  ///< of a send: the index of an action
  bool last = false;            ///< of a reduce or merge: the range is reduced over all ranks now (a mean is divided)
};

/// All actions of one rank in one operation.
struct Plan {
  std::vector<Action> actions;

  /// Appends one action, or one for each of the pieces; sends leave after the action `after`.
  void add(Action::Kind kind, std::size_t peer, Range piece, std::size_t after = Action::kAtOnce, bool last = false) {
    actions.push_back({kind, static_cast<std::uint32_t>(peer), piece, after, last});
  }
  void add(Action::Kind kind, std::size_t peer, const std::vector<Range>& pieces, std::size_t after = Action::kAtOnce,
           bool last = false);
  /// The index of the newest action; kAtOnce if there is none.
  std::size_t newest() const { return actions.empty() ? Action::kAtOnce : actions.size() - 1; }

  /// Elements that leave and arrive.
  std::uint64_t sent() const { return sum(true); }
  std::uint64_t received() const { return sum(false); }

 private:
  std::uint64_t sum(bool sends) const;
};

/// The rank that a plan is made for, and the largest message in elements.
struct Planner {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  std::size_t segment = 65536;

  /// The rank that is `distance` further on, and further back, round the ring. REQUIRES: distance <= ranks.
  std::size_t next(std::size_t distance = 1) const { return (rank + distance) % ranks; }
  std::size_t previous(std::size_t distance = 1) const { return (rank + ranks - distance) % ranks; }
  /// Cuts ranges into messages.
  std::vector<Range> cut(Range range) const;
  std::vector<Range> cut(const std::vector<Range>& ranges) const;
};

}  // namespace psring::ring
