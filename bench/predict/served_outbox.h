#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <psring/bench/predict/served_cards.h>
#include <psring/common/net/held_frames.h>
#include <psring/common/net/turn_queue.h>

namespace psring::bench {

/// The frames of a worker or server that wait until the card's windows have room, in the order of net::Outbox.
class ServedOutbox {
 public:
  /// `windows`: by how much a worker's window to each server is larger than the card's (worker::window_weights); empty:
  /// equal windows. REQUIRES: `cards` outlives this.
  ServedOutbox(ServedCards& cards, const ServedPlaces& places, std::size_t place, const std::vector<double>& windows);

  /// `unit`: of the frame's piece.
  void add(const ServedFrame& frame, std::size_t unit);
  /// A frame to the place has left.
  void left(std::size_t to) { changed(to); }
  /// Gives frames to the card while the windows have room.
  void flush(double now);

 private:
  bool has_room(std::size_t to) const;
  bool release(double now);
  void give(std::size_t to, const ServedFrame& frame, double now);
  void changed(std::size_t to) {
    if (!is_changed_[to]) changed_.push_back(to);
    is_changed_[to] = true;
  }

  ServedCards& cards_;
  const std::size_t place_;
  const bool to_servers_;
  std::vector<std::size_t> windows_;                  ///< by place
  std::optional<std::size_t> own_server_;             ///< place of the server in a worker's process
  net::TurnQueue<std::size_t, ServedFrame> waiting_;  ///< by place
  net::HeldFrames<ServedFrame> held_;
  std::vector<std::size_t> changed_;  ///< since the last flush: the others have no room
  std::vector<bool> is_changed_;      ///< by place
};

/// The outboxes of all workers and servers, by place.
std::vector<ServedOutbox> make_served_outboxes(const TimedJob& job, const ServedPlaces& places, ServedCards& cards);

}  // namespace psring::bench
