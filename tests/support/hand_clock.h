#pragma once

#include <algorithm>

#include <psring/common/base/clock.h>

namespace psring::test {

/// A clock that a test sets; who sleeps moves it on.
struct HandClock final : Clock {
  explicit HandClock(Moment start = Moment{}) : at(start) {}
  Moment now() const override { return at; }
  void sleep_until(Moment moment) const override { at = std::max(at, moment); }

  mutable Moment at;
};

}  // namespace psring::test
