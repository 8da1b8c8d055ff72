#pragma once

#include <atomic>

namespace psring {

/// Decides whether a thread that waits for another process yields its processor for a while before it sleeps. If the
/// other runs, it finds the thread awake. But a yield to a computing thread can last milliseconds, while a sleeper
/// would be woken at once; such a wait is a failure, as one that ended in sleep. After kDoubtAfter failures in a row
/// only one of kTryAgain waits yields, in case the situation has changed.
class Patience {
 public:
  bool hopeful() const {
    const unsigned misses = misses_.load(std::memory_order_relaxed);
    return misses < kDoubtAfter || misses % kTryAgain == 0;
  }
  /// After each wait that came to its yielding, or would have. `in_time`: what it waited for came meanwhile.
  void learn(bool in_time) {
    misses_.store(in_time ? 0 : misses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kDoubtAfter = 4;
  static constexpr unsigned kTryAgain = 31;  ///< a prime: a step's waits repeat, and each of them gets its turn

  std::atomic<unsigned> misses_{0};  ///< consecutive failures; two threads may count as one
};

}  // namespace psring
