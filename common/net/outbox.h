#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include <psring/common/net/held_frames.h>
#include <psring/common/net/transport.h>
#include <psring/common/net/turn_queue.h>

namespace psring::net {

/// A frame to send. The payload must stay unchanged until the receiver has proven that it has the payload. A payload of
/// at most 4 KiB, which transports copy, may be kept alive by `holder` alone.
struct Outgoing {
  Peer to;
  FrameHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> holder = nullptr;  ///< shared with the queue that the frame waits in
};

/// A priority queue of frames: the data that the next forward pass needs first leaves first. The order is: frames
/// without payload, then units in forward order, then the order of arrival. At most `window_bytes` per peer, or the
/// transport's smaller window, are given to the transport at a time, so that an urgent frame waits only briefly. Frames
/// of one unit leave to all peers in turn, in the order of arrival. A peer's window bounds its part of a busy card: a
/// peer of weight 2 gets twice the bytes of a peer of weight 1. The frames to one peer can be exempt and keep their
/// order. Payloads for a peer in the same process take their turns as if that peer had a window, too, and are then held
/// until the bytes before them have left; frames behind them wait for room in that window.
class Outbox {
 public:
  explicit Outbox(std::size_t window_bytes = kWindowBytes, std::optional<Peer> in_order = {})
      : window_bytes_(window_bytes), in_order_(in_order) {}

  /// Multiplies the peer's window. REQUIRES: weight >= 1. Peers that are not named have weight 1.
  void set_weight(Peer peer, double weight) { weights_[peer] = weight; }
  /// Names the peer whose payloads are held: a worker's own server. Called before `add`.
  void hold(Peer peer) { own_ = peer; }
  void add(const Outgoing& frame);
  /// Gives frames to the transport while its windows have room.
  void flush(Transport& transport);
  bool empty() const { return waiting_.empty() && held_.empty(); }

 private:
  bool has_room(const Transport& transport, Peer peer) const;
  std::size_t own_window() const;
  bool release(Transport& transport);
  void give(Transport& transport, Peer peer, const Outgoing& frame);
  std::size_t window_of(const Transport& transport, Peer peer) const;

  std::size_t window_bytes_;
  std::optional<Peer> in_order_;  ///< peer whose frames keep their order
  std::map<Peer, double> weights_;
  TurnQueue<Peer, Outgoing> waiting_;
  std::optional<Peer> own_;  ///< peer whose payloads are held
  HeldFrames<Outgoing> held_;
  std::map<Peer, std::size_t> others_;  ///< the windows of peers that payloads were given to; filled if there is `own_`
};

}  // namespace psring::net
