#pragma once

#include <cstdint>

#include <psring/common/base/clock.h>

namespace psring::net {

/// Measures for how long a member has only waited: its thread asks in every wait, at least every 100 ms, whether the
/// job goes on (ControlLink::check), and no byte has arrived meanwhile. A member that computes or writes a file is not
/// idle. A pure state machine in time.
class IdleWatch {
 public:
  /// The member's thread is in a wait.
  void wait(Moment now) {
    if (now - last_ > kGap) since_ = now;
    last_ = now;
  }
  /// The time that the member has been idle, as far as calls have seen. `received`: bytes in all.
  Nanoseconds idle(std::uint64_t received, Moment now) {
    if (received != received_) since_ = now;
    received_ = received;
    return now - last_ > kGap ? Nanoseconds(0) : now - since_;
  }

 private:
  /// A longer time without a question is work.
  static constexpr Nanoseconds kGap = std::chrono::milliseconds(500);

  Moment last_{};   ///< the last call of `wait`
  Moment since_{};  ///< the member waits since then
  std::uint64_t received_ = 0;
};

}  // namespace psring::net
