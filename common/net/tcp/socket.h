#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>

namespace psring::net {

/// Non-blocking TCP sockets; an endpoint is HOST:PORT or [HOST]:PORT.

/// Listens at this port of the host's address; 0: any free port. Throws data if the address is not this host's, or if
/// the port is taken.
Fd listen_tcp(const std::string& host, std::uint16_t port = 0);
/// The next client; nothing if no client waits.
std::optional<Fd> accept_tcp(const Fd& listener);

/// Begins to connect. Once the socket is writable, `connect_error` returns the result: 0, or an errno.
/// Throws data if the endpoint has another form, or cannot be resolved.
Fd start_connect(const std::string& endpoint);
int connect_error(const Fd& socket);

std::string local_endpoint(const Fd& socket);
std::string remote_endpoint(const Fd& socket);  ///< "?" if the connection has ended
/// The number of the host in HOST:PORT: equal for all endpoints of one host. See most_crowding.
std::uint64_t origin_of(const std::string& endpoint);

/// TCP's options for the kernel's probes of an idle connection, which break it after about `silence`; whole seconds.
struct Keepalive {
  int idle_s;
  int interval_s;
  int probes;
};
Keepalive keepalive(Nanoseconds silence);

/// Sets the options of every link's socket: bytes leave at once (TCP_NODELAY), and an idle connection whose other end
/// does not answer breaks after `silence`.
void set_link_options(const Fd& socket, Nanoseconds silence);

/// Has the kernel take at most about kUnsentBytes (held_frames.h) that it cannot send yet. Does nothing to descriptors
/// of other kinds.
void limit_unsent(int socket);

/// Does TCP itself get no answer from the other end? Then TCP retransmits, or probes a closed window in vain. A live
/// process that does not read still answers, through its kernel. (TCP_USER_TIMEOUT cannot tell the two cases apart: it
/// would break a link whose other end computes for a long time.)
bool unanswered(const Fd& socket);
/// Returns the bytes that were sent, and that the other end's kernel has not acknowledged.
std::size_t unacknowledged_bytes(const Fd& socket);

}  // namespace psring::net
