#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace psring::net {

/// Frames of a worker to the server in its own process. They need no card, but arrive as if they did: when the bytes
/// that were given to the card before them have left. Else the server would answer too early, and its answers would
/// share the card with the rest of the worker's gradients; TCP gives both an equal part. Then two hosts of which one
/// began a step late never got back into step: the answers to the late one were late, too, so that each of them
/// computed while the other's card was sending.
template <class Frame>
class HeldFrames {
 public:
  /// Counts bytes that are given to the card.
  void pass(std::uint64_t bytes) { passed_ += bytes; }
  void hold(Frame frame, std::size_t bytes) {
    bytes_ += bytes;
    frames_.push_back({passed_, bytes, std::move(frame)});
  }
  bool empty() const { return frames_.empty(); }
  /// Payload of the frames.
  std::size_t bytes() const { return bytes_; }

  /// Sends the frames whose time has come, in their order. `in_flight`: bytes that were given to the card and have not
  /// left; headers may be counted, too.
  template <class Send>
  void flush(std::uint64_t in_flight, Send send) {
    const std::uint64_t left = passed_ + kNear - std::min(in_flight, passed_ + kNear);
    while (!frames_.empty() && frames_.front().after <= left) {
      const Held held = std::move(frames_.front());
      frames_.pop_front();
      bytes_ -= held.bytes;
      send(held.frame);
    }
  }

 private:
  static constexpr std::uint64_t kNear = 128 << 10;  ///< of the bytes before a frame, those that need not have left
  struct Held {
    std::uint64_t after;  ///< the bytes before it
    std::size_t bytes;
    Frame frame;
  };

  std::uint64_t passed_ = 0;
  std::size_t bytes_ = 0;
  std::deque<Held> frames_;
};

}  // namespace psring::net
