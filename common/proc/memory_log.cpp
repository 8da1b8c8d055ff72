#include <chrono>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <psring/common/proc/memory_log.h>

namespace psring {
namespace {

/// Resident now; 0 where the system does not say.
std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryLog::MemoryLog(net::ControlLink& link, net::Peer self, const MemoryLedger& memory, const Clock& clock)
    : link_(link), self_(self), memory_(memory), clock_(clock) {
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
  std::unique_lock lock(mutex_);
  do append();
  while (!stopped_.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); }));
}

void MemoryLog::append() {
  const Nanoseconds now = clock_.now().time_since_epoch() + link_.clock_offset();
  nlohmann::ordered_json json = {{"time_s", seconds(now)}, {"role", to_string(self_.role)}, {"rank", self_.rank}};
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    json[std::string(to_string(category))] = {{"current", memory_.current_bytes(category)},
                                              {"peak", memory_.peak_bytes(category)}};
  }
  json["rss"] = resident_bytes();
  const std::string line = json.dump() + "\n";
  link_.append("memory.jsonl", std::as_bytes(std::span(line)));
}

}  // namespace psring
