#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace psring {

/// What a server or worker is started with; all else it learns from the coordinator.
struct RoleOptions {
  std::string endpoint;  ///< HOST:PORT of the coordinator
  std::string key_file;
  std::optional<std::uint32_t> rank = std::nullopt;
  std::string bind = {};  ///< "": the address that routes to the coordinator
};

}  // namespace psring
