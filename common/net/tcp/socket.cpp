#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/held_frames.h>
#include <psring/common/net/tcp/socket.h>

namespace psring::net {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, const std::string& port, const std::string& what) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    fail(ErrorKind::data, "{}: {}", what, ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

Fd make_socket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(ErrorKind::data, "cannot create a socket: {}", std::strerror(errno));
  return socket;
}

std::string to_text(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

void set(const Fd& socket, int level, int option, int value, const char* name) {
  if (::setsockopt(socket.get(), level, option, &value, sizeof value) != 0)
    fail(ErrorKind::data, "cannot set {} of a socket: {}", name, std::strerror(errno));
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

/// Sets Reno as the congestion control of a connection within the host. No congestion can occur there, but a congestion
/// control for long paths (BBR, if it is the system's default) paces and probes all the same. Every kernel has Reno,
/// and every user may choose it. `peer` is the address of the other end, because the connection may not be open yet.
void hurry_within_host(const Fd& socket, const sockaddr_storage& peer) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 || !same_host(own, peer)) return;
  constexpr std::string_view kReno = "reno";
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());  // if it fails: only slower
}

}  // namespace

Fd listen_tcp(const std::string& host, std::uint16_t port) {
  const AddressList address = resolve(host, std::to_string(port), host);
  Fd socket = make_socket(address->ai_family);
  // A fixed port can be bound again while connections of its previous owner are still in TIME_WAIT.
  if (port != 0) set(socket, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (::bind(socket.get(), address->ai_addr, address->ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
    fail(ErrorKind::data, "cannot listen at {}: {}", port == 0 ? host : fmt::format("{} port {}", host, port),
         std::strerror(errno));
  return socket;
}

std::optional<Fd> accept_tcp(const Fd& listener) {
  for (;;) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    Fd socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      hurry_within_host(socket, peer);
      return socket;
    }
    // accept(2) also reports errors of the one connection; the next client may be fine.
    if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) return std::nullopt;
  }
}

Fd start_connect(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == endpoint.size())
    fail(ErrorKind::data, "'{}' is no endpoint: expected HOST:PORT", endpoint);
  std::string host = endpoint.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const AddressList address = resolve(host, endpoint.substr(colon + 1), endpoint);
  Fd socket = make_socket(address->ai_family);
  if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)
    fail(ErrorKind::peer_lost, "{}", std::strerror(errno));
  sockaddr_storage peer{};
  std::memcpy(&peer, address->ai_addr, address->ai_addrlen);
  hurry_within_host(socket, peer);
  return socket;
}

int connect_error(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

std::string local_endpoint(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  return to_text(address, size);
}

std::string remote_endpoint(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  return to_text(address, size);
}

std::uint64_t origin_of(const std::string& endpoint) {
  return std::hash<std::string_view>()(std::string_view(endpoint).substr(0, endpoint.rfind(':')));
}

Keepalive keepalive(Nanoseconds silence) {
  constexpr int kProbes = 3;
  const auto whole = std::chrono::ceil<std::chrono::seconds>(std::min<Nanoseconds>(silence, std::chrono::hours(1)));
  const int quiet = std::max(1, static_cast<int>(whole.count()) / 2);
  return {.idle_s = quiet, .interval_s = std::max(1, quiet / kProbes), .probes = kProbes};
}

void set_link_options(const Fd& socket, Nanoseconds silence) {
  const Keepalive alive = keepalive(silence);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, alive.idle_s, "TCP_KEEPIDLE");
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, alive.interval_s, "TCP_KEEPINTVL");
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, alive.probes, "TCP_KEEPCNT");
}

void limit_unsent(int socket) {
  constexpr int kMost = kUnsentBytes;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMost, sizeof kMost);
}

bool unanswered(const Fd& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  // A single probe may still be in flight.
  return info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
}

std::size_t unacknowledged_bytes(const Fd& socket) {
  int left = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &left) != 0 ? 0 : static_cast<std::size_t>(left);
}

}  // namespace psring::net
