#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include <psring/common/base/system/control_group.h>

namespace psring {
namespace {

namespace fs = std::filesystem;

/// Version 1 expresses "no limit" as the largest number of pages.
constexpr double kUnlimited = 1e18;

/// Reads the number at the beginning of a file. Returns nothing if the file is missing, holds a word ("max"), or
/// expresses "no limit".
std::optional<double> number_of(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (!(in >> value) || value < 0 || value > kUnlimited) return std::nullopt;
  return value;
}

/// Parses "max 100000" or "150000 100000": the quota and the period, both in microseconds.
std::optional<double> quota_of(const fs::path& file) {
  std::ifstream in(file);
  double most = 0;
  double period = 0;
  if (!(in >> most >> period) || period <= 0) return std::nullopt;
  return most / period;
}

/// Returns the folders of a group and of all its parents, as far as they exist.
std::vector<fs::path> folders_of(const fs::path& mount, std::string_view path) {
  std::vector<fs::path> folders;
  fs::path below(path);
  for (;; below = below.parent_path()) {
    const fs::path folder = mount / below.relative_path();
    std::error_code ignored;
    if (fs::is_directory(folder, ignored)) folders.push_back(folder);
    if (!below.has_relative_path()) return folders;
  }
}

template <class T>
void lower(std::optional<T>& least, const std::optional<double>& value) {
  if (value && (!least || *value < static_cast<double>(*least))) least = static_cast<T>(*value);
}

void lower_tasks(ControlGroupLimits& limits, const fs::path& folder) {
  const auto most = number_of(folder / "pids.max");
  if (most) lower(limits.tasks_left, std::max(0.0, *most - number_of(folder / "pids.current").value_or(0)));
}

void add_version_1(ControlGroupLimits& limits, const std::string& controller, const fs::path& folder) {
  if (controller == "memory") lower(limits.memory_bytes, number_of(folder / "memory.limit_in_bytes"));
  if (controller == "pids") lower_tasks(limits, folder);
  if (controller != "cpu") return;
  const auto quota = number_of(folder / "cpu.cfs_quota_us");  // -1: none
  const auto period = number_of(folder / "cpu.cfs_period_us");
  if (quota && period) lower(limits.processors, *quota / *period);
}

void add_version_2(ControlGroupLimits& limits, const fs::path& folder) {
  lower(limits.memory_bytes, number_of(folder / "memory.max"));
  lower(limits.processors, quota_of(folder / "cpu.max"));
  lower_tasks(limits, folder);
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& membership, const fs::path& root) {
  ControlGroupLimits limits;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLER,CONTROLLER:PATH
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    if (second == first + 1)
      for (const fs::path& folder : folders_of(root, path)) add_version_2(limits, folder);
    for (std::string controller; std::getline(controllers, controller, ',');)
      for (const fs::path& folder : folders_of(root / controller, path)) add_version_1(limits, controller, folder);
  }
  return limits;
}

ControlGroupLimits control_group_limits() {
  std::ifstream in("/proc/self/cgroup");
  std::ostringstream membership;
  membership << in.rdbuf();
  return control_group_limits(membership.str(), "/sys/fs/cgroup");
}

}  // namespace psring
