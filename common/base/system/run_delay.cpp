#include <filesystem>
#include <fstream>

#include <time.h>

#include <psring/common/base/system/run_delay.h>

namespace psring {

std::optional<double> run_delay_seconds() {
  std::optional<double> sum;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream in(thread.path() / "schedstat");
    double ran_ns = 0;
    double delayed_ns = 0;
    if (in >> ran_ns >> delayed_ns) sum = sum.value_or(0) + 1e-9 * delayed_ns;
  }
  return sum;
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace psring
