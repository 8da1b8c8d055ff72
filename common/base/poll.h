#pragma once

#include <algorithm>
#include <cstdint>

#include <psring/common/base/clock.h>

namespace psring {

/// What poll(2) takes to wait until `deadline`: milliseconds, rounded up so that it does not wake early and
/// spin; -1 for kNever, 0 where the deadline has passed.
inline int poll_milliseconds(Moment now, Moment deadline) {
  if (deadline == kNever) return -1;
  if (deadline <= now) return 0;
  const std::int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<std::int64_t>(left, 1 << 30));
}

}  // namespace psring
