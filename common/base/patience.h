#pragma once

#include <atomic>
#include <chrono>

#include <sched.h>

#include <psring/common/base/clock.h>

namespace psring {

/// Decides whether a thread that waits for another process yields its processor for a while before it sleeps. If the
/// other runs, it finds the thread awake. But a yield to a computing thread can last milliseconds, while a sleeper
/// would be woken at once; such a wait is a failure. After kDoubtAfter failures in a row only one of kTryAgain waits
/// yields, in case the situation has changed.
class Patience {
 public:
  bool hopeful() const {
    const unsigned misses = misses_.load(std::memory_order_relaxed);  // memory order: a guess needs none
    return misses < kDoubtAfter || misses % kTryAgain == 0;
  }
  /// After a wait that was a success or a failure, and after each one without hope.
  void learn(bool success) {
    misses_.store(success ? 0 : misses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kDoubtAfter = 4;
  static constexpr unsigned kTryAgain = 31;  ///< a prime: a step's waits repeat, and each of them gets its turn

  std::atomic<unsigned> misses_{0};  ///< consecutive failures; two threads may count as one
};

/// Yields the processor. Returns false if a computing thread has had it for long: a rank of a job copies and adds, and
/// soon waits itself, but another program computes until its time slice ends.
inline bool yield_briefly() {
  const SystemClock clock;
  const Moment begin = clock.now();
  ::sched_yield();
  return clock.now() - begin < std::chrono::microseconds(800);
}

}  // namespace psring
