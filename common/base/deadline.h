#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include <psring/common/base/clock.h>

namespace psring {

/// Until when a call waits, and what else may end the wait: `check` is called while it waits, at least every 100 ms,
/// and throws where waiting is in vain.
class Deadline {
 public:
  Deadline(Moment moment, std::function<void()> check = {}) : moment_(moment), check_(std::move(check)) {}

  Moment moment() const { return moment_; }
  void check() const {
    if (check_) check_();
  }
  /// The same, but sooner.
  Deadline at_most(Moment moment) const { return {std::min(moment_, moment), check_}; }
  /// For how long to sleep before the next `check`, or the end; nothing is left where it is not above 0.
  Nanoseconds next_sleep(Moment now) const {
    const Nanoseconds left = moment_ - now;
    return check_ ? std::min<Nanoseconds>(left, std::chrono::milliseconds(100)) : left;
  }

 private:
  Moment moment_;
  std::function<void()> check_;
};

}  // namespace psring
