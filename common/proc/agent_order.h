#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <psring/common/net/frame.h>

namespace psring::net {

/// The coordinator's order to an agent: start roles, kill roles, or show people a line.
struct AgentOrder {
  enum class Kind : std::uint8_t { start, end, tell } kind = Kind::start;
  std::vector<Peer> roles;
  std::string text;
};

}  // namespace psring::net
