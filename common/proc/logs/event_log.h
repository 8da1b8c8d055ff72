#pragma once

#include <thread>

#include <psring/common/base/events/event_recorder.h>
#include <psring/common/base/system/mutex.h>

namespace psring {

class Membership;

/// Records a role's events. A thread of its own deflates them, and sends them to the run folder once a second, as
/// events/<role>-<rank>.events. So the events in memory are bounded, and the run folder has the events of a lost
/// process up to the last second.
class EventLog {
 public:
  /// REQUIRES: the membership outlives it.
  explicit EventLog(Membership& member);
  ~EventLog() { finish(); }
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  EventRecorder& recorder() { return recorder_; }
  /// Later events are of the membership's present rank and epoch. REQUIRES: Membership::meet has returned.
  void enter_epoch();
  /// Sends the rest, and ends the thread. Call it before the link is flushed; the destructor calls it for a role that
  /// ends otherwise.
  void finish();

 private:
  void run(const std::stop_token& stop);
  /// Sends the events recorded so far, but none while the coordinator is silent, so that the recorder's bound holds.
  void send_parts() PSRING_REQUIRES(mutex_);

  Membership& member_;
  EventRecorder recorder_;
  Mutex mutex_;
  std::string file_ PSRING_GUARDED_BY(mutex_);  ///< "": no epoch has begun
  EventOrigin origin_ PSRING_GUARDED_BY(mutex_);
  std::jthread thread_;  ///< the last member: it ends before the others
};

}  // namespace psring
