#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include <psring/common/base/clock.h>

namespace psring {

/// The end of a wait. `check` may end the wait earlier: it is called at least every 100 ms during the wait, and throws
/// if further waiting is useless.
class Deadline {
 public:
  Deadline(Moment moment, std::function<void()> check = {}) : moment_(moment), check_(std::move(check)) {}

  Moment moment() const { return moment_; }
  void check() const {
    if (check_) check_();
  }
  /// Returns the same deadline, shortened to `moment` if `moment` is earlier.
  Deadline at_most(Moment moment) const { return {std::min(moment_, moment), check_}; }
  /// Returns the time to sleep before the next `check` or the deadline. The deadline has passed if the result is not
  /// above 0.
  Nanoseconds next_sleep(Moment now) const {
    const Nanoseconds left = moment_ - now;
    return check_ ? std::min<Nanoseconds>(left, std::chrono::milliseconds(100)) : left;
  }

 private:
  Moment moment_;
  std::function<void()> check_;
};

}  // namespace psring
