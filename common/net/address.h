#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace psring::net {

/// A numeric address and a port.
struct Endpoint {
  std::string host;  ///< without brackets
  std::uint16_t port = 0;
};

/// Returns HOST:PORT, or [HOST]:PORT for an IPv6 address.
std::string to_string(const Endpoint& endpoint);
bool is_loopback(const Endpoint& endpoint);
/// Does it stand for all addresses of its host? Others cannot connect to that.
bool is_any_address(const Endpoint& endpoint);

/// Parses and resolves HOST:PORT or [ADDRESS]:PORT; prefers an IPv4 address if a name has several addresses. Throws
/// usage, naming `flag` and the text, if the text has another form, the port is not in [least_port, 65535], or the host
/// cannot be resolved.
Endpoint resolve_endpoint(std::string_view flag, const std::string& text, std::uint16_t least_port = 1);

/// Returns the local address from which packets to `host` (a name or an address) leave. A role binds this address if
/// other hosts must reach it. Throws data if there is no route.
std::string address_towards(const std::string& host);

/// Returns the local address that `--bind` names: an address, an interface (eth0), or a network that contains an
/// address of this host (10.0.0.0/8, fd00::/8). An interface's IPv4 address comes before its IPv6 addresses. Throws
/// usage if there is none.
std::string bind_address(const std::string& text);

/// Returns 127.0.0.1, or ::1 on a host whose loopback interface has only that.
std::string loopback_address();

/// An address of this host.
struct LocalAddress {
  std::string interface;
  std::vector<std::uint8_t> bytes;  ///< in network order: 4 for IPv4, 16 for IPv6
  std::string text;                 ///< in digits
  bool is_up = false;               ///< the interface

  /// Reaches no further than one network, and only with the interface's name.
  bool is_link_local() const { return bytes.size() == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
};

/// Returns all addresses of this host: IPv4 first, link-local ones last. Throws data if they cannot be listed.
std::vector<LocalAddress> local_addresses();

/// Returns the name of the interface with this local address (lo, eth0), or "" if no interface has it.
std::string interface_of(const std::string& address);

}  // namespace psring::net
