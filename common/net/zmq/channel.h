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
  bool encrypt = false;                                ///< uses CURVE, with key pairs derived from the job's key
  const ZapAuthenticator* authenticator = nullptr;     ///< of the context; required to listen with encryption
  Nanoseconds silence = std::chrono::seconds(10);      ///< a link is lost if the other end's TCP is silent this long
  Refusals* refusals = nullptr;                        ///< counts refused connections
  std::size_t low_water_bytes = std::size_t{1} << 20;  ///< see ZmqChannel::arm
  bool follow_departures = false;                      ///< see ZmqChannel::follow_departures
};

/// The data links of one process over ZeroMQ. The process may listen, connect, or both (servers connect to server 0).
/// Every link opens with the handshake of handshake.h, encrypted or not.
///
/// A message on the wire is one part with header (128 B) and payload, or, if the payload exceeds 4 KiB, two parts: the
/// payload and then the header (see ZmqOutbox::lend). ZMTP adds 2 or 9 bytes per part. ZeroMQ's I/O thread reads
/// payloads above 4 KiB from the caller's memory, without a copy; received payloads are handed on without a copy. The
/// destructor sends queued messages for at most a second (none during an exception), and returns only when the caller's
/// memory is not read any more.
///
/// Frames of clients that have not proved the key are counted and dropped; ZmqGate bounds their connections. A peer
/// that breaks the protocol loses its link: try_receive throws protocol, and reaches() is false from then on. If a link
/// breaks that this side opened, try_receive throws peer_lost once, after all arrived messages. If a peer opened the
/// link, its loss shows when `send` throws peer_lost. A peer that opens a new link replaces its old link, but not with
/// a lower incarnation.
///
/// `arm` also returns false, and wait_fd becomes readable, after the bytes in flight to a peer fell to the low-water
/// mark: a sender that keeps its queue short for priorities can then continue.
class ZmqChannel : public Channel {
 public:
  /// Binds an address such as "tcp://127.0.0.1:0", once, and returns the endpoint with its port. Throws data if the
  /// address is in use or does not belong to this host.
  virtual std::string listen(const std::string& address) = 0;

  /// Opens a link to each peer at its endpoint, and waits for peers that do not listen yet. Throws timeout at the
  /// deadline; throws unauthorised, protocol or peer_lost earlier, naming the peer and the endpoint. Does not serve
  /// clients meanwhile, so two processes must not connect to each other.
  virtual void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) = 0;

  /// For the peers that `connect` will link to, makes in_flight_bytes count the bytes that have not left for the
  /// network, except for the last kUnsentBytes. Without this call the kernel takes megabytes more than it can send.
  /// `arm` then also returns false after each payload that has left.
  virtual void follow_departures() = 0;

  /// Frames dropped because their sender had not proved the key.
  virtual std::uint64_t refused_frames() const = 0;
};

/// REQUIRES: the context outlives the channel.
std::unique_ptr<ZmqChannel> make_zmq_channel(ZmqContext& context, ZmqOptions options);

}  // namespace psring::net
