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

/// Payloads of at most so many bytes are copied by `send` where they cannot leave at once.
inline constexpr std::size_t kCopiedBytes = 4096;

/// One way to reach some peers (ZeroMQ, TCP, shared memory), driven by PollTransport: it never waits itself.
/// Belongs to one thread.
class Channel {
 public:
  virtual ~Channel() = default;

  /// Is there an open, authenticated link to the peer?
  virtual bool reaches(Peer peer) const = 0;
  /// As Transport::send, with the header complete.
  virtual void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) = 0;
  /// The next frame that is there. Also does what the channel has to do behind the scenes (handshakes).
  virtual std::optional<Message> try_receive() = 0;
  /// Call before sleeping, after a try_receive that had nothing: false where it has something now. After true,
  /// `wait_fd` is readable (poll's POLLIN) as soon as try_receive may have something.
  virtual bool arm() = 0;
  virtual int wait_fd() const = 0;
  /// Call after sleeping, where `wait_fd` is readable.
  virtual void woken() {}
  /// Who this process is to those who connect from now on.
  virtual void become([[maybe_unused]] Identity self) {}
  /// As Transport::place_payloads.
  virtual void place_payloads([[maybe_unused]] const Place& place) {}

  virtual std::size_t in_flight_bytes(Peer peer) const = 0;
  virtual std::size_t window_bytes() const { return kWindowBytes; }  ///< as Transport::window_bytes
  /// What a message with such a payload costs besides it.
  virtual std::size_t framing_bytes(std::size_t payload_bytes) const = 0;
  /// What stays in the process is not counted, and not waited for by spinning: the sender needs the processor.
  virtual bool leaves_process() const { return true; }
  virtual std::string describe(Peer peer) const = 0;
};

/// A transport over several channels: spins briefly, then sleeps in poll(2) on all of them.
/// Fills in each header's job, sender, sequence and payload_bytes, and counts bytes by frame type.
std::unique_ptr<Transport> make_poll_transport(Peer self, std::uint64_t job,
                                               std::vector<std::unique_ptr<Channel>> channels, ByteLedger& ledger);

}  // namespace psring::net
