#pragma once

#include <chrono>
#include <cstdint>

namespace psring {

using Nanoseconds = std::chrono::nanoseconds;
/// A moment of a Clock. Deadlines are moments, too.
using Moment = std::chrono::time_point<std::chrono::steady_clock, Nanoseconds>;

inline constexpr Moment kNever = Moment::max();

/// The source of time: the system's monotonic clock, or a virtual clock in a simulation.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Moment now() const = 0;
  /// Returns at `moment`, or at once if `moment` has passed.
  virtual void sleep_until(Moment moment) const = 0;
};

class SystemClock final : public Clock {
 public:
  Moment now() const override { return std::chrono::steady_clock::now(); }
  void sleep_until(Moment moment) const override;
};

inline double seconds(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }
inline Nanoseconds from_seconds(double value) { return Nanoseconds{static_cast<std::int64_t>(value * 1e9)}; }

}  // namespace psring
