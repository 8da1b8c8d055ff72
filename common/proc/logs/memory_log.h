#pragma once

#include <thread>

#include <psring/common/base/system/mutex.h>

namespace psring {

class Membership;

/// Writes a role's lines of memory.jsonl: a line at the start, a line per second, and a line at the end. The log also
/// looks 20 times a second, and writes a line if more memory is booked than in any line so far; so one line is near the
/// peak. Each line has the time on the coordinator's clock and the booked bytes by category (current, peak). If the
/// role has a process of its own, the line also has the system's counts: resident memory (rss), and the same with a
/// page that n processes share counted as 1/n (pss); both are null if the system does not tell. A thread of its own
/// writes the lines, so that a role is seen while it waits and while it computes.
class MemoryLog {
 public:
  explicit MemoryLog(Membership& member);
  ~MemoryLog();
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  /// Writes the last line, and ends the thread. Call it before the link is flushed.
  void finish();

 private:
  void run(const std::stop_token& stop);
  void append();

  Membership& member_;
  Mutex mutex_;
  StoppableCondition stopped_;
  std::jthread thread_;
};

}  // namespace psring
