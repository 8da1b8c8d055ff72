#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/key.h>
#include <psring/common/net/refusals.h>

namespace psring::net {

struct TcpOptions {
  JobKey key;
  Identity self;
  bool encrypt = false;                            ///< libsodium's secretstream; the same at both ends
  std::size_t streams = 1;                         ///< sockets of each link that this side opens, 1 to 16
  Nanoseconds silence = std::chrono::seconds(10);  ///< a link whose other end's TCP says nothing so long is lost
  Nanoseconds handshake_timeout = std::chrono::seconds(5);  ///< what a client has to prove the key
  Refusals* refusals = nullptr;                             ///< counts connections that come to nothing
};

/// The data links of one process over bare TCP sockets, driven by the calling thread: what a ring wants, where a
/// hop through another thread costs more than the bytes. It may listen, connect, or both; one link with a peer serves
/// both directions, whoever opened it. Every socket opens with the handshake of handshake.h.
///
/// Payloads above kCopiedBytes are sent from the caller's memory: they stay until in_flight_bytes, which counts what
/// the kernel has not taken yet (headers and seals, too), shows that they have left; until it is 0, try_receive has to
/// be called for them to leave. Received ones are put where place_payloads says, or into
/// pooled memory. Where a link has several streams, frame k travels on stream k mod n and is delivered in its turn;
/// one early frame of each stream is held back, so that places may be asked about that much ahead.
///
/// Strangers cost at most 8 KiB each, 256 of them: one more pushes out the oldest, and all go after
/// `handshake_timeout`. A peer that breaks the protocol costs its link: try_receive throws protocol, reaches() is
/// false from then on. A link that ends, or whose other end's TCP is silent, makes try_receive throw peer_lost,
/// naming peer and address, once, after what had come was delivered; what is sent in between is dropped. A peer that
/// opens a new link while it has one is refused, unless the old one is broken or of a lower incarnation.
///
/// The destructor waits for at most a second until the other ends' kernels have what was sent (not at all where an
/// exception is under way).
class TcpChannel : public Channel {
 public:
  /// Listens at this port of the address (0: any), once; returns HOST:PORT for `connect`. Throws data.
  virtual std::string listen(const std::string& host, std::uint16_t port = 0) = 0;

  /// Opens a link to each peer at its HOST:PORT, and serves those who connect here meanwhile: processes may connect
  /// to each other in any order, as long as of two only one does (rank r to all lower ranks). Throws peer_lost where
  /// nobody listens, timeout, unauthorised or protocol, naming the peer and the endpoint.
  virtual void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) = 0;

  /// Waits until all of these are linked, whoever opened the links. Throws timeout, naming one that is not.
  virtual void await_links(const std::set<Peer>& peers, const Deadline& deadline) = 0;
};

std::unique_ptr<TcpChannel> make_tcp_channel(TcpOptions options);

}  // namespace psring::net
