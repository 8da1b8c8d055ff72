#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace psring {

/// The smallest limits of the control groups of a process, from its own group to the root. Empty if there is no limit.
struct ControlGroupLimits {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> processors;
  std::optional<std::uint64_t> tasks_left;  ///< number of threads that may still be started
};

/// `membership`: content of /proc/PID/cgroup. `root`: mount point of the control groups, version 1 (a folder per
/// controller) or 2. Groups that are not visible, as in a container, are skipped.
ControlGroupLimits control_group_limits(const std::string& membership, const std::filesystem::path& root);

/// The limits of this process.
ControlGroupLimits control_group_limits();

}  // namespace psring
