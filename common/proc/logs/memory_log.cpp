#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/logs/memory_log.h>
#include <psring/common/proc/role.h>

namespace psring {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr int kLooksALine = 20;

/// The system's counts of this process's memory, in bytes; empty if the system does not report them.
struct SystemMemory {
  std::optional<std::uint64_t> resident;
  std::optional<std::uint64_t> proportional;  ///< a page that n processes map counts as 1/n
};

SystemMemory system_memory() {
  SystemMemory memory;
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    if (!(words >> name >> kib)) continue;
    if (name == "Rss:") memory.resident = kib * 1024;
    if (name == "Pss:") memory.proportional = kib * 1024;
  }
  return memory;
}

}  // namespace

MemoryLog::MemoryLog(Membership& member) : member_(member) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

MemoryLog::~MemoryLog() = default;

void MemoryLog::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  append();
}

void MemoryLog::run(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  std::size_t most = 0;
  int looks = 0;
  do {
    const std::size_t booked = member_.memory().current_bytes();
    const bool due = looks++ % kLooksALine == 0;
    if (booked <= most && !due) continue;
    most = std::max(most, booked);
    append();
  } while (!stopped_.wait_for(mutex_, stop, kLook, [&] { return stop.stop_requested(); }));
}

void MemoryLog::append() {
  const Nanoseconds now = member_.clock().now().time_since_epoch() + member_.link().clock_offset();
  const net::Peer self = member_.self();
  const MemoryLedger& memory = member_.memory();
  Json json = {{"time_s", seconds(now)}, {"role", to_string(self.role)}, {"rank", self.rank}};
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    json[std::string(to_string(category))] = {{"current", memory.current_bytes(category)},
                                              {"peak", memory.peak_bytes(category)}};
  }
  if (!member_.is_guest()) {
    const SystemMemory system = system_memory();
    json["rss"] = system.resident ? Json(*system.resident) : Json();
    json["pss"] = system.proportional ? Json(*system.proportional) : Json();
  }
  const std::string line = json.dump() + "\n";
  member_.link().append("memory.jsonl", std::as_bytes(std::span(line)));
}

}  // namespace psring
