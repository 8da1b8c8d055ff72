#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace psring {

namespace net {
class LocalLink;
}

/// What a server or worker is started with; all else it learns from the coordinator.
struct RoleOptions {
  std::string endpoint;  ///< HOST:PORT of the coordinator
  std::string key_file;
  std::optional<std::uint32_t> rank = std::nullopt;
  std::string bind = {};     ///< "": the address that routes to the coordinator
  double join_timeout = 30;  ///< seconds for the coordinator to answer; what comes then is the job's own
  bool patient = false;      ///< see ControlLink::Options
  /// Of a role that lives in another's process; shared with that one. Null: the process is its own.
  std::shared_ptr<net::LocalLink> host = nullptr;
};

}  // namespace psring
