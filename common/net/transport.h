#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/frame.h>

namespace psring::net {

/// A frame that arrived.
struct Message {
  FrameHeader header;                  ///< header.sender() is the authenticated peer of the link
  std::span<const std::byte> payload;  ///< readable as long as `holder` lives; aligned to its element size
  /// Memory of the requesting peer into which the answer may be written directly. An answer whose payload is this span
  /// is not copied. Empty if the transport does not support it.
  std::span<std::byte> reply_space;
  std::shared_ptr<const void> holder;  ///< shared with the owner of the bytes: a pooled buffer, a mapping
  std::shared_ptr<const void> reply_holder = nullptr;  ///< keeps `reply_space` mapped; shared with its mapping
};

/// Default for the bytes that a sender with priorities has in flight to each peer.
inline constexpr std::size_t kWindowBytes = std::size_t{4} << 20;

/// Returns the place for the payload of an arriving frame: memory of exactly header.payload_bytes, or an empty span for
/// the transport's own memory. The memory must exist until the message was received or its peer is lost. Called once
/// per frame, as soon as the header has arrived: always before the message is received, perhaps several frames earlier.
/// An interrupted frame leaves the memory half written.
using Place = std::function<std::span<std::byte>(const FrameHeader&)>;

/// Ordered, reliable frames between this process and its linked peers. The peers and the links are fixed when the
/// transport is made. Belongs to one thread, except `wake`. Counts all bytes in the byte ledger.
///
/// Flow control. A link has bounded buffers: shared memory, the kernel's socket buffers, a library's queues. A frame
/// occupies them until the receiver's `receive` returns the frame; a message that the receiver keeps lies in memory of
/// the receiver or of the sender, never in the link. A frame that does not fit waits at its sender, in memory that the
/// sender lends until the protocol's answer. So links cannot deadlock, whatever the processes keep and in whatever
/// order the frames come: a sender waits only for its receiver to call `receive`, and a receiver that waits is in
/// `receive`, because `send` never waits. No process waits for a third one, so that the waits form no cycle. The
/// protocol bounds the receiver's memory: a shard keeps at most one push for each worker, micro-batch and piece.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Sends a frame; never waits. Sets the header's sender, sequence and payload_bytes. The payload must stay unchanged
  /// until the protocol's answer proves that the peer has it, because transports read it late. Throws peer_lost if
  /// there is no link to the peer any more.
  virtual void send(Peer to, FrameHeader header, std::span<const std::byte> payload) = 0;

  /// Returns the next frame of any peer; frames of one peer are in order. Returns nothing once `deadline` has passed
  /// (and no frame is there), `wake` was called, or bytes in flight have left so that there is room for more. Throws
  /// peer_lost if a link broke, protocol if a peer broke the protocol.
  virtual std::optional<Message> receive(Moment deadline) = 0;

  /// Bytes given to `send` for this peer that have not left yet. A sender with priorities bounds them.
  virtual std::size_t in_flight_bytes(Peer peer) const = 0;

  /// Do the bytes for this peer leave in the order of `send`? Then the bytes that have not left are the last
  /// in_flight_bytes of all bytes that were sent.
  virtual bool leaves_in_order([[maybe_unused]] Peer peer) const { return true; }

  /// The number of bytes that a sender with priorities should keep in flight to a peer: enough to keep the link busy,
  /// but no more, because no frame overtakes bytes in flight.
  virtual std::size_t window_bytes([[maybe_unused]] Peer peer) const { return kWindowBytes; }

  /// Lets payloads arrive at their destination without a copy. A transport may ignore the request. The payload of a
  /// placed message begins at that place, and the message has no holder. `place` is called within `receive`.
  virtual void place_payloads([[maybe_unused]] const Place& place) {}

  /// Describes the link to the peer for people: "shared memory", "tcp 10.0.0.2:7001, encrypted".
  virtual std::string describe(Peer peer) const = 0;

  /// Ends a waiting `receive`, or the next one. May be called from any thread.
  virtual void wake() = 0;
};

}  // namespace psring::net
