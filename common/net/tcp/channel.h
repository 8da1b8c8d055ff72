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
  Nanoseconds silence = std::chrono::seconds(10);  ///< a link is lost when the other end's TCP is silent for this long
  Nanoseconds handshake_timeout = std::chrono::seconds(30);  ///< the time in which a client has to prove the key
  Refusals* refusals = nullptr;                              ///< counts connections that do not become links
};

/// The data links of one process over bare TCP sockets, driven by the calling thread. The ring needs this: a hop
/// through another thread would cost more than the bytes. A channel may listen, connect, or both. One link with a peer
/// serves both directions, whichever side opened it. Every socket opens with the handshake of handshake.h.
///
/// Payloads above kCopiedBytes are sent from the caller's memory. The caller keeps them unchanged until in_flight_bytes
/// is 0, and calls try_receive until then, because try_receive continues to send. in_flight_bytes counts the bytes that
/// the kernel has not taken yet, with headers and seals. Arriving payloads are put where place_payloads says, or into
/// pooled memory. On a link of several streams, frame k travels on stream k mod n and is delivered in its turn; one
/// early frame of each stream is held back, so places may be asked for that many frames ahead.
///
/// Clients that have not proved the key cost at most 8 KiB each, and there are at most 1024 of them: one more pushes
/// out another (most_crowding), and each is dropped after `handshake_timeout`. A peer that breaks the protocol loses
/// its link: try_receive throws protocol, and reaches() is false from then on. When a link ends, or the other end's TCP
/// is silent, try_receive delivers the frames that have arrived, and then throws peer_lost once, naming peer and
/// address; frames that are sent in between are dropped. A peer that opens a second link is refused, unless the old
/// link is broken or belongs to a lower incarnation.
///
/// The destructor waits for at most a second until the other ends' kernels have all bytes that were sent. It does not
/// wait during stack unwinding, or after a link was lost.
class TcpChannel : public Channel {
 public:
  /// Listens at this port of the address (0: any), once. Returns HOST:PORT for `connect`. Throws data.
  virtual std::string listen(const std::string& host, std::uint16_t port = 0) = 0;

  /// Opens a link to each peer at its HOST:PORT, and serves clients meanwhile: processes may connect to each other in
  /// any order, as long as only one of two connects (rank r to all lower ranks). Throws peer_lost if nobody listens
  /// there, timeout, unauthorised or protocol, naming the peer and the endpoint.
  virtual void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) = 0;

  /// Waits until all of these peers are linked, whichever side opened the links. Throws timeout, naming a peer that is
  /// not linked.
  virtual void await_links(const std::set<Peer>& peers, const Deadline& deadline) = 0;
};

std::unique_ptr<TcpChannel> make_tcp_channel(TcpOptions options);

}  // namespace psring::net
