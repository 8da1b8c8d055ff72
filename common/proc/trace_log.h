#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include <psring/common/base/trace.h>

namespace psring {

class Membership;

/// A role's trace, which a thread of its own sends to the run folder twice a second, as trace/<role>-<rank>.json. So
/// the events in memory are bounded, and the trace of a process that is lost is there up to the last half second.
class TraceLog {
 public:
  /// REQUIRES: the membership outlives it, and has joined.
  explicit TraceLog(Membership& member);
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  EventListener& listener() { return trace_; }
  /// Sends the rest, and ends the thread. Call it before the link is flushed.
  void finish();

 private:
  void run(const std::stop_token& stop);

  Membership& member_;
  Trace trace_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  ///< the last member: it ends before the others
};

}  // namespace psring
