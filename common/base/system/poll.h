#pragma once

#include <algorithm>
#include <cstdint>

#include <psring/common/base/clock.h>

namespace psring {

/// Returns the timeout of poll(2) for a wait until `deadline`, in milliseconds: -1 for kNever, 0 if the deadline has
/// passed. Rounds up, so that poll does not return early and spin.
inline int poll_milliseconds(Moment now, Moment deadline) {
  if (deadline == kNever) return -1;
  if (deadline <= now) return 0;
  const std::int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<std::int64_t>(left, 1 << 30));
}

}  // namespace psring
