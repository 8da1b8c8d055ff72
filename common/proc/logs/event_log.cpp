#include <chrono>
#include <stop_token>

#include <psring/common/base/system/mutex.h>
#include <psring/common/proc/logs/event_log.h>
#include <psring/common/proc/role.h>

namespace psring {

EventLog::EventLog(Membership& member) : member_(member), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void EventLog::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void EventLog::enter_epoch() {
  const MutexLock lock(mutex_);
  send_parts();
  const net::Peer self = member_.self();
  file_ = fmt::format("events/{}-{}.events", to_string(self.role), self.rank);
  origin_ = {.process = to_string(self),
             .number = self.rank + (self.role == net::Role::server ? 1001U : 1U),
             .epoch = member_.epoch()};
}

void EventLog::send_parts() {
  if (file_.empty() || member_.link().silent()) return;
  origin_.offset = member_.link().clock_offset();
  for (const EventRecorder::Bytes& part : recorder_.take(origin_)) member_.link().append(file_, part);
}

void EventLog::run(const std::stop_token& stop) {
  for (bool stops = false; !stops;) {
    stops = stop.stop_requested();
    if (!stops) recorder_.deflate_for(std::chrono::seconds(1), stop);
    const MutexLock lock(mutex_);
    send_parts();
  }
}

}  // namespace psring
