#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/optim/exact_sum.h>

namespace psring::server {

/// The sums that a step needs of all shards before it can be applied (norms for clipping and layerwise
/// rules): each sends its part to server 0, which adds them exactly and sends every shard the total.
/// A pure state machine; rounds are numbered and follow each other.
class Verdict {
 public:
  using Sums = std::vector<optim::ExactSum>;

  Verdict(std::uint32_t rank, std::uint32_t servers) : rank_(rank), servers_(servers) {}

  /// This shard's part of the next round. Returns the total where that completes it.
  std::optional<Sums> contribute(const Sums& mine, std::vector<net::Outgoing>& replies);
  /// A part (server 0) or a total (the others). Throws protocol where none is due.
  std::optional<Sums> on_message(const net::Message& message, std::vector<net::Outgoing>& replies);

 private:
  std::optional<Sums> merge(const Sums& part, std::vector<net::Outgoing>& replies);
  net::Outgoing frame(net::Peer to, const Sums& sums);

  const std::uint32_t rank_;
  const std::uint32_t servers_;
  std::uint64_t round_ = 0;
  std::size_t parts_ = 0;  ///< server 0: shards merged so far
  Sums total_;
  std::vector<std::byte> wire_[2];  ///< of alternate rounds: the next round proves that this one arrived
};

}  // namespace psring::server
