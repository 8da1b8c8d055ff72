#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace psring::cli {

/// The least limits of the control groups that a process is in, from its own to the root; none: not limited.
struct ControlGroupLimits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> processors;
  std::optional<std::uint64_t> tasks_left;  ///< threads that may still be started
};

/// `membership`: what /proc/PID/cgroup says; `root`: where control groups are mounted, of version 1 (a folder for each
/// controller) or 2. Groups that are not visible from here, as in a container, are passed over.
ControlGroupLimits control_group_limits(const std::string& membership, const std::filesystem::path& root);

}  // namespace psring::cli
