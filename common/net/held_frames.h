#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace psring::net {

/// On a link whose departures are followed, the kernel takes at most about this number of bytes that it cannot send
/// yet.
inline constexpr std::size_t kUnsentBytes = std::size_t{128} << 10;

/// Frames of a worker to the server in its own process. They need no card, but arrive as if they crossed it: when the
/// bytes that were given to the card before them have left. Otherwise the server would answer too early, and its
/// answers would share the card with the rest of the worker's gradients; TCP gives both an equal part. Then a host that
/// begins a step late would stay late: the answers to it come late, too, so that each host computes while the other's
/// card sends.
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

  /// Sends the frames whose time has come, in their order, and returns whether there was one. `in_flight`: bytes that
  /// were given to the card and have not left; headers may be counted, too. `window`: the most bytes that are given to
  /// the card for one peer. Half of the window, or kUnsentBytes, need not have left, so that the card does not wait for
  /// the own server.
  template <class Send>
  bool flush(std::uint64_t in_flight, std::size_t window, Send send) {
    const std::uint64_t almost = passed_ + std::min(kUnsentBytes, window / 2);
    const std::uint64_t left = almost - std::min(in_flight, almost);
    const std::size_t before = frames_.size();
    while (!frames_.empty() && frames_.front().after <= left) {
      const Held held = std::move(frames_.front());
      frames_.pop_front();
      bytes_ -= held.bytes;
      send(held.frame);
    }
    return frames_.size() < before;
  }

 private:
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
