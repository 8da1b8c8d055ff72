#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace psring {

// Environment variables that launchers of other frameworks set; they stand in for missing flags.

/// MASTER_ADDR:MASTER_PORT, if both are set.
std::optional<std::string> master_endpoint();
/// The value of a variable such as RANK, WORLD_SIZE or LOCAL_RANK, if it is set. Throws usage, naming the variable, if
/// the value is no whole number >= 0.
std::optional<std::uint32_t> environment_number(const char* name);

}  // namespace psring
