#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>

namespace psring::net {

/// Non-blocking TCP sockets; an endpoint is HOST:PORT or [HOST]:PORT.

/// Listens at this port of the host's address; 0: any that is free. Throws data where the address is not ours, or the
/// port is taken.
Fd listen_tcp(const std::string& host, std::uint16_t port = 0);
/// The next client, or none for now.
std::optional<Fd> accept_tcp(const Fd& listener);

/// Begins to connect; once the socket is writable, `connect_error` says how it ended: 0, or errno.
/// Throws data where the endpoint is none, or cannot be resolved.
Fd start_connect(const std::string& endpoint);
int connect_error(const Fd& socket);

std::string local_endpoint(const Fd& socket);
std::string remote_endpoint(const Fd& socket);  ///< "?" where there is none any more

/// The kernel's probes of an idle connection, so that it breaks after about `silence`: TCP's options, in whole seconds.
struct Keepalive {
  int idle_s;
  int interval_s;
  int probes;
};
Keepalive keepalive(Nanoseconds silence);

/// What sockets of links have in common: nothing waits to be sent together with more, and an idle connection whose
/// other end does not answer breaks after `silence`.
void set_link_options(const Fd& socket, Nanoseconds silence);

/// Has TCP itself no answer from the other end: it repeats what was sent, or asks in vain whether there is room? An
/// end that lives but does not read answers. (TCP_USER_TIMEOUT cannot tell the two apart: it would break a link whose
/// other end computes for long.)
bool unanswered(const Fd& socket);
/// Has all that was sent been taken by the other end's kernel?
bool all_acknowledged(const Fd& socket);

}  // namespace psring::net
