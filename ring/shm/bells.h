#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/base/clock.h>
#include <psring/common/base/patience.h>
#include <psring/common/base/processor/hints.h>
#include <psring/ring/shm/control.h>

namespace psring::ring {

/// The way ranks wake each other. A rank that changes the control file rings. A rank that has nothing to do spins,
/// yields as long as Patience has hope, then sleeps on its own bell, a futex. A rank has one bell for all its groups,
/// so that it sleeps for all at once.
class ShmBells {
 public:
  /// `bells`: the group's ranks in the world's part of the control file. `crowded`: more ranks than processors.
  ShmBells(ShmControl bells, std::size_t rank, std::size_t size, bool crowded);

  /// Wakes the ranks that sleep; they see everything that was stored before.
  void ring();
  /// The same, but a rank that falls asleep at this moment may be missed.
  void wake_sleepers();

  /// Announces that this rank may sleep soon: everything that is stored from now on rings its bell. Look for news after
  /// this call; then `sleep` or `rest` with the returned value, and `leave`.
  std::uint32_t watch();
  /// Sleeps until the bell has rung since `watch`, or the time is over.
  void sleep(std::uint32_t seen, Nanoseconds at_most);
  /// Spins, yields, then sleeps until the bell has rung since `watch`, at most until the given moment. Leaves.
  void rest(std::uint32_t seen, Moment until);
  void leave() { own().sleeping.store(0, std::memory_order_relaxed); }  // memory order: a late 0 costs a ring

  /// Spins briefly, then yields for a while if there is hope; returns true as soon as `ready` does, false if it never
  /// did.
  template <class Ready>
  bool spin(Ready ready) {
    for (unsigned i = 0; i < pauses_; ++i) {
      if (ready()) return true;
      spin_pause();
    }
    const SystemClock clock;
    const bool hopeful = patience_.hopeful();
    const Moment limit = clock.now() + kYieldFor;
    bool done = false;
    bool brief = hopeful;
    while (!done && brief && clock.now() < limit) {
      brief = yield_briefly();
      done = ready();
    }
    if (done || !brief) patience_.learn(brief);
    return done;
  }

  static constexpr Nanoseconds kSleep = std::chrono::milliseconds(20);  ///< then a rank checks whether its peers live

 private:
  static constexpr Nanoseconds kYieldFor = std::chrono::microseconds(100);
  ShmRank& own() { return bells_.rank(rank_); }

  const ShmControl bells_;
  const std::size_t rank_;
  const std::size_t size_;
  const unsigned pauses_;
  Patience patience_;
  bool all_fence_ = false;  ///< all ranks are known to fence all processes before they sleep
};

}  // namespace psring::ring
