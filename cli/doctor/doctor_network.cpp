#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <psring/cli/doctor/doctor_checks.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/tcp/socket.h>

namespace psring::cli {
namespace {

/// Checks that a port of this address accepts a connection from this host.
Judgement try_port(const std::string& host) {
  const Fd listener = net::listen_tcp(host);
  const std::string endpoint = net::local_endpoint(listener);
  const Fd client = net::start_connect(endpoint);
  pollfd knock{listener.get(), POLLIN, 0};
  if (::poll(&knock, 1, 2000) != 1 || !net::accept_tcp(listener))
    fail(ErrorKind::timeout, "{} does not accept a connection from this host", endpoint);
  return {.figure = fmt::format("{} accepts connections", endpoint)};
}

/// Returns the local address from which packets leave for the peer, or for any host; nothing if there is no route.
std::optional<std::string> way_out(const Examination& examination) {
  if (examination.peer) return net::address_towards(examination.peer->host);
  // Addresses for documentation, which no host has; nothing is sent.
  for (const char* anywhere : {"203.0.113.1", "2001:db8::1"}) {
    try {
      return net::address_towards(anywhere);
    } catch (const Error&) {  // no route to this address
    }
  }
  return std::nullopt;
}

}  // namespace

Judgement check_loopback_port(const Examination&) { return try_port(net::loopback_address()); }

Judgement check_outward_port(const Examination& examination) {
  const auto address = way_out(examination);
  if (!address)
    return {.level = Level::warn,
            .figure = "no route to other hosts",
            .cure = "jobs can only run on this host: connect it to a network for jobs on several hosts"};
  return try_port(*address);
}

Judgement check_port_range(const Examination& examination) {
  std::ifstream in("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  if (!(in >> first >> last)) fail(ErrorKind::data, "/proc/sys/net/ipv4/ip_local_port_range: not two numbers");
  return judge_port_range(first, last, examination.processes);
}

Judgement check_interfaces(const Examination& examination) {
  const auto address = way_out(examination);
  std::string taken;
  std::map<std::string, std::string> by_interface;
  for (const net::LocalAddress& local : net::local_addresses()) {
    if (!local.is_up || local.is_link_local()) continue;
    by_interface[local.interface] += " " + local.text;
    if (local.text == address) taken = local.interface;
  }
  std::string list;
  for (const auto& [name, addresses] : by_interface)
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", name, addresses);
  const std::string destination = examination.peer ? examination.peer->host : "other hosts";
  if (!address) return {.figure = list.empty() ? "none is up" : list + "; none leads to other hosts"};
  return {.figure = fmt::format("{}; towards {}: {} {}", list, destination, taken, *address)};
}

Judgement check_congestion_control(const Examination&) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char usual[16] = {};
  socklen_t size = sizeof usual - 1;
  if (!socket || ::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, usual, &size) != 0)
    fail(ErrorKind::data, "cannot ask a socket: {}", std::strerror(errno));
  return judge_congestion_control(usual, ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
}

}  // namespace psring::cli
