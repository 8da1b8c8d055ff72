#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include <psring/cli/train/other_load.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/system/processors.h>

namespace psring::cli {
namespace {

/// Returns the busy seconds of the processors that this process may use, since the host started, from the lines "cpuN
/// user nice system idle iowait irq softirq" of proc(5). Nothing if there are none.
std::optional<double> busy_seconds() {
  const cpu_set_t allowed = allowed_processors();
  std::ifstream in("/proc/stat");
  std::optional<double> ticks;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0;
    double nice = 0;
    double system = 0;
    double idle = 0;
    double waiting = 0;
    double irq = 0;
    double softirq = 0;
    if (!(words >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq)) continue;
    const int cpu = name.starts_with("cpu") && name.size() > 3 ? std::atoi(name.c_str() + 3) : -1;
    if (cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed))
      ticks = ticks.value_or(0) + user + nice + system + irq + softirq;
  }
  return ticks ? std::optional(*ticks / static_cast<double>(::sysconf(_SC_CLK_TCK))) : std::nullopt;
}

double own_seconds() {
  double sum = 0;
  for (const auto target : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(target, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      sum += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return sum;
}

double now_seconds() { return seconds(SystemClock().now().time_since_epoch()); }

}  // namespace

OtherLoad::OtherLoad() : busy_s_(busy_seconds()), own_s_(own_seconds()), start_s_(now_seconds()) {}

std::optional<double> OtherLoad::processors() const {
  const double passed = now_seconds() - start_s_;
  const std::optional<double> busy_s = busy_seconds();
  if (!busy_s || !busy_s_ || passed <= 0) return std::nullopt;
  const double others = ((*busy_s - *busy_s_) - (own_seconds() - own_s_)) / passed;
  // Processors that this process's CPU quota cannot pay for are free for other programs.
  const cpu_set_t allowed = allowed_processors();
  const double spare = std::max(0.0, CPU_COUNT(&allowed) - static_cast<double>(usable_processors()));
  return std::max(0.0, others - spare);
}

}  // namespace psring::cli
