#include <algorithm>
#include <thread>

#include <psring/common/base/system/control_group.h>
#include <psring/common/base/system/processors.h>

namespace psring {

cpu_set_t allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
  return allowed;
}

std::size_t usable_processors() {
  const cpu_set_t set = allowed_processors();
  const auto allowed = static_cast<std::size_t>(CPU_COUNT(&set));
  return usable_processors(allowed > 0 ? allowed : std::thread::hardware_concurrency(),
                           control_group_limits().processors);
}

std::size_t usable_processors(std::size_t allowed, std::optional<double> quota) {
  if (quota && *quota < static_cast<double>(allowed)) allowed = static_cast<std::size_t>(*quota);
  return std::max<std::size_t>(allowed, 1);
}

}  // namespace psring
