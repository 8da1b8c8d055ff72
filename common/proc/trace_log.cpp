#include <chrono>

#include <psring/common/proc/role.h>
#include <psring/common/proc/trace_log.h>

namespace psring {

TraceLog::TraceLog(Membership& member) : member_(member), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void TraceLog::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  member_.send_trace(trace_);
}

void TraceLog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, stop, std::chrono::milliseconds(500), [&] { return stop.stop_requested(); }))
    member_.send_trace(trace_);
}

}  // namespace psring
