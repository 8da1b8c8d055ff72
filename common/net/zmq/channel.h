#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/zmq/socket.h>
#include <psring/common/net/zmq/zap.h>

namespace psring::net {

struct ZmqOptions {
  JobKey key;
  Identity self;
  bool encrypt = false;                                ///< CURVE, with the key pairs of the job's key
  const ZapAuthenticator* authenticator = nullptr;     ///< the context's; who encrypts and listens needs one
  Nanoseconds silence = std::chrono::seconds(10);      ///< a link whose other end's TCP says nothing so long is lost
  Refusals* refusals = nullptr;                        ///< counts connections that come to nothing
  std::size_t low_water_bytes = std::size_t{1} << 20;  ///< see ZmqChannel::arm
};

/// The data links of one process over ZeroMQ: it may listen, connect, or both (servers connect to server 0).
/// Every link opens with the handshake of handshake.h, encrypted or not.
///
/// On the wire a message is one part, header (128 B) and payload, or one for each where the payload has more than
/// 4 KiB; ZMTP frames a part with 2 or 9 bytes.
/// Payloads above 4 KiB are read from the caller's memory by ZeroMQ's I/O thread, without a copy; received
/// ones are handed on as they arrived. The destructor sends for at most a second what is still queued (nothing
/// where an exception is under way), and returns only when no caller's memory is read any more.
///
/// What strangers send is counted and dropped; their connections are bounded as ZmqGate says. A peer that breaks the
/// protocol costs its link: try_receive throws protocol and reaches() is false from then on. A link that this side
/// opened and that breaks makes try_receive throw peer_lost, once, after what had arrived; one that a peer opened is
/// known to be gone when `send` throws peer_lost. A peer that opens a new link replaces its old one, but not with a
/// lower incarnation.
///
/// `arm` is false also after the bytes in flight to some peer fell to the low-water mark, and wait_fd becomes
/// readable then: a sender that keeps its queue short for the sake of priorities can go on.
class ZmqChannel : public Channel {
 public:
  /// Binds "tcp://127.0.0.1:0" or the like, once; returns the endpoint with its port. Throws data where the
  /// address is in use or not ours.
  virtual std::string listen(const std::string& address) = 0;

  /// Opens a link to each peer at its endpoint. Waits for those who do not listen yet, and throws timeout at
  /// the deadline, unauthorised, protocol or peer_lost before, naming the peer and the endpoint. Serves nobody
  /// meanwhile: two processes must not connect to each other.
  virtual void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) = 0;

  /// Frames dropped because their sender had not proved the key.
  virtual std::uint64_t refused_frames() const = 0;
};

/// The context must outlive the channel.
std::unique_ptr<ZmqChannel> make_zmq_channel(ZmqContext& context, ZmqOptions options);

}  // namespace psring::net
