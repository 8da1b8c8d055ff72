#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace psring {

namespace net {
class LocalLink;
}

/// The start options of a server or worker. The coordinator tells the rest.
struct RoleOptions {
  std::string endpoint;  ///< HOST:PORT of the coordinator
  std::string key_file;
  std::optional<std::uint32_t> rank = std::nullopt;
  std::string bind = {};     ///< "": the address that routes to the coordinator
  double join_timeout = 30;  ///< seconds for the coordinator to answer; later waits have the job's own timeout
  bool patient = false;      ///< see ControlLink::Options
  bool leaves = false;       ///< a signal ends this process at once, as a loss; false: the signal ends the job
  /// The way to the other role of this process, shared with that role. Null: this role has the process to itself.
  std::shared_ptr<net::LocalLink> host = nullptr;
};

}  // namespace psring
