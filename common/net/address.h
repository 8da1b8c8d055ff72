#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace psring::net {

/// An address in digits, and a port.
struct Endpoint {
  std::string host;  ///< without brackets
  std::uint16_t port = 0;
};

/// HOST:PORT, and [HOST]:PORT where the host is an IPv6 address.
std::string to_string(const Endpoint& endpoint);
bool is_loopback(const Endpoint& endpoint);

/// What HOST:PORT or [ADDRESS]:PORT means; of a name that has several addresses an IPv4 one goes first. Throws
/// usage, naming `flag` and the text, where it is not of this form, the port is not from `least_port` to 65535, or
/// the host cannot be resolved.
Endpoint resolve_endpoint(std::string_view flag, const std::string& text, std::uint16_t least_port = 1);

/// The local address from which packets to `host` (a name or an address) leave: what a role binds that
/// others have to reach. Throws data where there is no route.
std::string address_towards(const std::string& host);

/// The local address that `--bind` means: an address, an interface's name (eth0), or a network in which one
/// of our addresses lies (10.0.0.0/8). Throws usage where there is none.
std::string bind_address(const std::string& text);

/// The name of the interface that has this address of ours (lo, eth0); "" where none has.
std::string interface_of(const std::string& address);

}  // namespace psring::net
