#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/optim/exact_sum.h>

namespace psring::server {

/// The sums that a step needs of all shards before it can be applied (norms for clipping and layerwise
/// rules): each sends its part to server 0, which adds them exactly and sends every shard the total.
/// A pure state machine; rounds are numbered and follow each other, over membership epochs too: a shard that has not
/// heard the total of a round when an epoch ends repeats it, and server 0, which never is behind the others, tells it
/// again.
class Verdict {
 public:
  using Sums = std::vector<optim::ExactSum>;

  Verdict(std::uint32_t rank, std::uint32_t servers) : rank_(rank), servers_(servers), merged_(servers, false) {}

  /// This shard's part of the next round. Returns the total where that completes it.
  std::optional<Sums> contribute(const Sums& mine, std::vector<net::Outgoing>& replies);
  /// A part (server 0) or a total (the others). Throws protocol, and changes nothing, where none is due: of
  /// another round, a second time, or before this shard asked for a total. A part of the last round that is finished
  /// is answered with its total: its sender did not hear it before a membership epoch ended.
  std::optional<Sums> on_message(const net::Message& message, std::vector<net::Outgoing>& replies);
  /// Forgets the round under way: what comes of it next is the first.
  void begin_epoch();

  /// What another needs to go on as this one between two rounds: the last total, empty where it is not to be told
  /// again; it stays as it is until the next round ends.
  std::uint64_t round() const { return round_; }
  std::span<const std::byte> last_total() const;
  /// Throws protocol where such a total cannot be.
  void restore(std::uint64_t round, std::span<const std::byte> last_total);

 private:
  bool is_repeated(const net::Message& message) const;
  void check_due(const net::Message& message) const;
  std::optional<Sums> merge(std::uint32_t rank, const Sums& part, std::vector<net::Outgoing>& replies);
  std::span<const std::byte> to_wire(const Sums& sums);
  net::Outgoing frame(std::uint32_t to, std::uint64_t round, std::span<const std::byte> wire) const;

  const std::uint32_t rank_;
  const std::uint32_t servers_;
  std::uint64_t round_ = 0;
  std::size_t sums_due_ = 0;  ///< the others: how many sums the total must have; 0 where none was asked for
  std::vector<bool> merged_;  ///< server 0: whose parts are in the total
  Sums total_;
  /// Of alternate rounds: the next round proves that this one arrived. Server 0's last is the last total.
  std::vector<std::byte> wire_[2];
};

}  // namespace psring::server
