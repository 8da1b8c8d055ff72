#pragma once

#include <cstdint>
#include <string>

namespace psring::net {

/// Identifies the place where this process runs: the machine's boot, the network namespace and the user. Two processes
/// with the same id can share memory. Throws data if /proc does not provide the id.
std::string host_id();
/// Returns the name that this host has for itself; "?": it has none.
std::string host_name();
/// Identifies the namespace in which this process's number is its number; 0: unknown.
std::uint64_t pid_namespace();

}  // namespace psring::net
