#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// `send` copies payloads of at most this size if they cannot leave at once.
inline constexpr std::size_t kCopiedBytes = 4096;

/// While frames flow, `try_receive` looks for other events once in as many calls.
inline constexpr std::size_t kCallsPerLook = 128;

/// A way to reach some peers (ZeroMQ, TCP, shared memory). PollTransport drives its channels; a channel never waits.
/// Belongs to one thread.
class Channel {
 public:
  virtual ~Channel() = default;

  /// Returns whether there is an open, authenticated link to the peer.
  virtual bool reaches(Peer peer) const = 0;
  /// Sends a frame as Transport::send does. The header is complete.
  virtual void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) = 0;
  /// Returns the next frame, or nothing for now. Also advances the channel's own work, such as handshakes.
  virtual std::optional<Message> try_receive() = 0;
  /// Prepares to sleep; call it after a try_receive that returned nothing. Returns false if the channel has work now.
  /// After true, `wait_fd` becomes readable (poll's POLLIN) as soon as try_receive may return a frame.
  virtual bool arm() = 0;
  virtual int wait_fd() const = 0;
  /// Call after sleeping, if `wait_fd` is readable.
  virtual void woken() {}
  /// Sets the identity that this process presents on later connections.
  virtual void become([[maybe_unused]] Identity self) {}
  /// Implements Transport::place_payloads.
  virtual void place_payloads([[maybe_unused]] const Place& place) {}

  virtual std::size_t in_flight_bytes(Peer peer) const = 0;
  /// See Transport::leaves_in_order.
  virtual bool leaves_in_order([[maybe_unused]] Peer peer) const { return true; }
  virtual std::size_t window_bytes() const { return kWindowBytes; }  ///< as Transport::window_bytes
  /// Bytes that a message with this payload adds on the wire.
  virtual std::size_t framing_bytes(std::size_t payload_bytes) const = 0;
  /// Returns whether frames leave this process. If they do not, they are not counted, and receivers do not spin,
  /// because the sender needs the processor.
  virtual bool leaves_process() const { return true; }
  /// Returns whether peers write frames into memory that try_receive reads, mostly without a call of the kernel.
  virtual bool is_memory() const { return false; }
  virtual std::string describe(Peer peer) const = 0;
};

/// Combines several channels into a transport. `receive` spins briefly, then sleeps in poll(2) on all channels. Fills
/// in each header's job, sender, sequence and payload_bytes, and counts bytes by frame type.
std::unique_ptr<Transport> make_poll_transport(Peer self, std::uint64_t job,
                                               std::vector<std::unique_ptr<Channel>> channels, ByteLedger& ledger);

}  // namespace psring::net
