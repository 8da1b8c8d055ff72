#pragma once

#include <string>

namespace psring::net {

/// Where this process runs: the machine's boot, the network namespace and the user, in one word. Two
/// processes with the same one can reach each other through shared memory. Throws data where /proc
/// does not say.
std::string host_id();

}  // namespace psring::net
