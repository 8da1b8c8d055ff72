#pragma once

#include <string>

namespace psring {

/// The marks by which builds of psring are told apart.
struct BuildId {
  std::string program = {};  ///< for people: "psring 0.1.0 (1a2b3c4)"
  std::string sources = {};  ///< a hash of all sources that determine the messages between the processes of a job
  bool operator==(const BuildId&) const = default;
};

/// "psring 0.1.0 (1a2b3c4), sources 0123456789abcdef"
inline std::string to_string(const BuildId& build) { return build.program + ", sources " + build.sources; }

/// The build that this program was linked with. CMake generates the source (common/build_id.cmake). A program that
/// defines this function itself has the build that it says.
BuildId build_id();

}  // namespace psring
