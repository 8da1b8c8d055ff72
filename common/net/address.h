#pragma once

#include <string>

namespace psring::net {

/// The local address from which packets to `host` (a name or an address) leave: what a role binds that
/// others have to reach. Throws data where there is no route.
std::string address_towards(const std::string& host);

/// The local address that `--bind` means: an address, an interface's name (eth0), or a network in which one
/// of our addresses lies (10.0.0.0/8). Throws usage where there is none.
std::string bind_address(const std::string& text);

}  // namespace psring::net
