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
  std::span<const std::byte> payload;  ///< readable as long as `holder` lives; on a boundary of its elements
  /// Memory of the asking peer into which the answer may be written directly: an answer whose payload is
  /// this span then costs no copy. Empty where the transport has none.
  std::span<std::byte> reply_space;
  std::shared_ptr<const void> holder;  ///< shared with whatever owns the bytes: a pooled buffer, a mapping
};

/// What a sender with priorities has in flight to each peer, where nothing else is said.
inline constexpr std::size_t kWindowBytes = std::size_t{4} << 20;

/// Where the payload of an arriving frame is to be put: memory of exactly header.payload_bytes that stays until the
/// message was received or its peer is lost, or an empty span for memory of the transport's own. Asked once a frame,
/// as soon as its header is there: always before its message is received, perhaps several frames earlier. A frame
/// that is broken off leaves the memory half written.
using Place = std::function<std::span<std::byte>(const FrameHeader&)>;

/// Ordered, reliable frames between this process and the peers it is linked to; who they are and how
/// they are reached was settled when the transport was made. Belongs to one thread, but for `wake`.
/// Counts what it moves in the byte ledger.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Sends a frame; never waits. Sets the header's sender, sequence and payload_bytes. The payload must
  /// stay unchanged until the protocol's answer proves that the peer has it: transports read it late.
  /// Throws peer_lost where there is no link to the peer any more.
  virtual void send(Peer to, FrameHeader header, std::span<const std::byte> payload) = 0;

  /// The next frame of any peer, in each peer's order, or nothing once `deadline` has passed, `wake` was
  /// called, or bytes in flight have left so that there is room for more. Throws peer_lost where a link broke, protocol
  /// where a peer broke the protocol.
  virtual std::optional<Message> receive(Moment deadline) = 0;

  /// Bytes given to `send` for this peer that have not left yet: what a sender with priorities looks at.
  virtual std::size_t in_flight_bytes(Peer peer) const = 0;

  /// How many bytes a sender with priorities should have in flight to a peer: enough to keep the link busy, and not
  /// more, as nothing overtakes what is in flight.
  virtual std::size_t window_bytes([[maybe_unused]] Peer peer) const { return kWindowBytes; }

  /// Lets payloads arrive where they are needed, without a copy. A transport may ignore it: a message that did arrive
  /// in its place has a payload that begins there, and no holder. `place` is called within `receive`.
  virtual void place_payloads([[maybe_unused]] const Place& place) {}

  /// How the peer is reached, for people: "shared memory", "tcp 10.0.0.2:7001, encrypted".
  virtual std::string describe(Peer peer) const = 0;

  /// Ends a `receive` that is waiting, or the next one. From any thread.
  virtual void wake() = 0;
};

}  // namespace psring::net
