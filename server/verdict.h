#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/optim/exact_sum.h>

namespace psring::server {

/// Adds up sums over all shards, which a step may need before it can be applied (norms for clipping and layerwise
/// rules): each shard sends its part to server 0, which adds the parts exactly and sends the total to every shard.
///
/// A pure state machine. Rounds are numbered and follow each other, over membership epochs too: a shard that has not
/// received the total of a round when an epoch ends repeats its part. Server 0 is never behind the others, and sends
/// the total again.
class Verdict {
 public:
  using Sums = std::vector<optim::ExactSum>;

  Verdict(std::uint32_t rank, std::uint32_t servers) : rank_(rank), servers_(servers), merged_(servers, false) {}

  /// Contributes this shard's part of the next round. Returns the total if this completes the round.
  std::optional<Sums> contribute(const Sums& mine, std::vector<net::Outgoing>& replies);
  /// Takes a part (server 0) or a total (the others), and returns the total if the round is complete. Throws protocol,
  /// and changes nothing, if the frame is not due: it is of another round, comes a second time, or comes before this
  /// shard has contributed. A part of the round that was finished last is answered with that round's total: its sender
  /// did not receive the total before a membership epoch ended.
  std::optional<Sums> on_message(const net::Message& message, std::vector<net::Outgoing>& replies);
  /// Forgets the parts of the round under way. The round begins again.
  void begin_epoch();

  /// The state between two rounds, from which a follower's Verdict continues: the number of finished rounds, and the
  /// last total at server 0, which may have to send it again. The bytes stay valid until the next round ends.
  std::uint64_t round() const { return round_; }
  std::span<const std::byte> last_total() const;
  /// Throws protocol if the total does not fit the round.
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
  std::size_t sums_due_ = 0;  ///< not at server 0: the number of sums in the total; 0: this shard waits for none
  std::vector<bool> merged_;  ///< at server 0, by server: its part is in the total
  Sums total_;
  /// The sent bytes of the last two rounds, by round % 2. A frame of the next round proves that this round's frames
  /// arrived. At server 0 these are totals.
  std::vector<std::byte> wire_[2];
};

}  // namespace psring::server
