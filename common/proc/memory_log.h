#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace psring {

class Membership;

/// Writes a role's lines of memory.jsonl: one at the start, one a second, one at the end, and one where a look (20 a
/// second) finds more booked than any line so far: so one is near the peak. Each has the time on the coordinator's
/// clock, the bytes booked by category (current, peak), and, where the process is its own, what the system counts:
/// resident memory (rss), and the same with a page that n processes share counted as 1/n (pss; both null where the
/// system does not say).
/// A thread of its own, so that a role that waits is seen as well as one that computes.
class MemoryLog {
 public:
  explicit MemoryLog(Membership& member);
  ~MemoryLog();
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  /// Writes the last line; then there is no other. Call it before the link is flushed.
  void finish();

 private:
  void run(const std::stop_token& stop);
  void append();

  Membership& member_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace psring
