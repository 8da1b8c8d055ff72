#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/bench/cost/served_cards.h>
#include <psring/common/net/outbox.h>

namespace psring::bench {

/// The frames of a worker or server that wait until the card's windows have room, in the order of net::Outbox.
class ServedOutbox {
 public:
  /// `windows`: by how much a worker's window to each server is larger than the card's (worker::window_weights); empty:
  /// equal windows. REQUIRES: `cards` outlives this.
  ServedOutbox(ServedCards& cards, std::size_t place, bool to_servers, const std::vector<double>& windows);

  /// `unit`: of the frame's piece.
  void add(const ServedFrame& frame, std::size_t unit);
  /// Gives frames to the card while the windows have room.
  void flush(double now);
  bool empty() const { return outbox_.empty(); }

 private:
  class Room;

  ServedCards& cards_;
  const std::size_t place_;
  const bool to_servers_;
  net::Outbox outbox_;
  std::vector<ServedFrame> frames_;  ///< that wait, and unused ones
  std::vector<std::uint32_t> unused_;
};

/// The outboxes of all workers and servers, by place.
std::vector<ServedOutbox> make_served_outboxes(const TimedJob& job, const ServedPlaces& places, ServedCards& cards);

}  // namespace psring::bench
