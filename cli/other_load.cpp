#include <algorithm>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include <psring/cli/other_load.h>
#include <psring/common/base/clock.h>

namespace psring::cli {
namespace {

/// Of all processors, since the host started: proc(5), the line "cpu user nice system idle iowait irq softirq".
double busy_seconds() {
  std::ifstream in("/proc/stat");
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double waiting = 0;
  double irq = 0;
  double softirq = 0;
  if (!(in >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq)) return 0;
  return (user + nice + system + irq + softirq) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      sum += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return sum;
}

double now_seconds() { return seconds(SystemClock().now().time_since_epoch()); }

}  // namespace

OtherLoad::OtherLoad() : busy_s_(busy_seconds()), own_s_(own_seconds()), start_s_(now_seconds()) {}

double OtherLoad::processors() const {
  const double passed = now_seconds() - start_s_;
  if (passed <= 0) return 0;
  return std::max(0.0, ((busy_seconds() - busy_s_) - (own_seconds() - own_s_)) / passed);
}

}  // namespace psring::cli
