#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <psring/ring/process_group.h>

namespace psring::ring {

/// How an all-reduce between processes that exchange messages goes.
enum class Algorithm : std::uint8_t {
  exchange,          ///< all send to all, everyone reduces: one message's latency, (n - 1) * M bytes
  doubling,          ///< recursive doubling: log2 n latencies, log2 n * M bytes
  halving_doubling,  ///< recursive halving, then doubling: 2 log2 n latencies, 2 (n-1)/n * M bytes where n is 2^k
  ring,              ///< round the ring twice: 2 (n-1) latencies, 2 (n-1)/n * M bytes, neighbours only
  star,              ///< all send to rank 0, which reduces and sends back: for teaching
};

std::string_view to_string(Algorithm algorithm);
/// Throws usage, naming the flag.
Algorithm parse_algorithm(const char* flag, const std::string& name);

/// Messages of an all-reduce that can only leave one after another: how often a link's delay counts.
std::size_t latencies(Algorithm algorithm, std::size_t ranks);

/// What one rank does in an operation, as index arithmetic: no data, no sockets, no time.
///
/// Sends leave in their order, each once the action that it comes `after` is done. All other actions are done in
/// their order: a message that came early is held until it is its turn, so that a rerun gives the same bits.
/// The k-th message from one rank to another is the k-th receiving action that names it.
struct Action {
  enum class Kind : std::uint8_t {
    send,
    receive,  ///< takes the place of the range
    reduce,   ///< range = op(range, what was received)
    merge,    ///< the same of a range that was sent before: the lower rank's is the first operand, at both
    collect,  ///< is held for `combine`
    combine,  ///< range = op over all ranks, in their order, of what was collected and our own
  };
  static constexpr std::size_t kAtOnce = static_cast<std::size_t>(-1);

  Kind kind = Kind::send;
  std::uint32_t peer = 0;
  Range range;
  std::size_t after = kAtOnce;  ///< of a send: the index of an action
  bool last = false;            ///< of a reduce or merge: the range is reduced over all ranks now (a mean is divided)
};

struct Plan {
  std::vector<Action> actions;

  /// Elements that leave and arrive.
  std::uint64_t sent() const { return sum(true); }
  std::uint64_t received() const { return sum(false); }

 private:
  std::uint64_t sum(bool sends) const;
};

/// Who plans: rank `rank` of `ranks`, in messages of at most `segment` elements.
struct Planner {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  std::size_t segment = 65536;

  Plan all_reduce(Algorithm algorithm, std::size_t count) const;
  /// `direct`: each part goes straight to its owner, else round the ring.
  Plan reduce_scatter(const Parts& parts, bool direct) const;
  Plan all_gather(const Parts& parts, bool direct) const;
  /// `tree`: doubling from the root; else along a chain, in segments.
  Plan broadcast(std::size_t count, std::size_t root, bool tree) const;
  Plan barrier() const;

 private:
  std::vector<Range> cut(Range range) const;
  std::vector<Range> cut(const std::vector<Range>& ranges) const;
  void add_ring_reduce_scatter(Plan& plan, const Parts& parts) const;
  void add_ring_all_gather(Plan& plan, const Parts& parts, bool after_reduce) const;
  void add_doubling(Plan& plan, std::size_t count) const;
  void add_halving_doubling(Plan& plan, std::size_t count) const;
  void add_star(Plan& plan, std::size_t count) const;
  void add_exchange(Plan& plan, std::size_t count) const;
};

}  // namespace psring::ring
