#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace psring {

/// What launchers of other frameworks put into the environment, for flags that are missing.
/// MASTER_ADDR:MASTER_PORT, where both are set.
std::optional<std::string> master_endpoint();
/// RANK, WORLD_SIZE, LOCAL_RANK: a whole number >= 0. Throws usage, naming the variable, for anything else.
std::optional<std::uint32_t> environment_number(const char* name);

}  // namespace psring
