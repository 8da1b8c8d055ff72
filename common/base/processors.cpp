#include <algorithm>
#include <thread>

#include <sched.h>

#include <psring/common/base/control_group.h>
#include <psring/common/base/processors.h>

namespace psring {

std::size_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails on hosts with more processors than the set has room for.
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  return usable_processors(known ? static_cast<std::size_t>(CPU_COUNT(&set)) : std::thread::hardware_concurrency(),
                           control_group_limits().processors);
}

std::size_t usable_processors(std::size_t allowed, std::optional<double> quota) {
  if (quota && *quota < static_cast<double>(allowed)) allowed = static_cast<std::size_t>(*quota);
  return std::max<std::size_t>(allowed, 1);
}

}  // namespace psring
