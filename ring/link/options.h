#pragma once

#include <cstddef>
#include <optional>

#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>
#include <psring/ring/group_options.h>
#include <psring/ring/plan/tuning.h>

namespace psring::ring {

struct LinkOptions {
  GroupOptions group;
  Tuning tuning;
  std::optional<Algorithm> algorithm;  ///< of all all-reduces; none: the tuning table picks
  std::size_t segment_bytes = 0;       ///< of a message; 0: the tuning table picks
  /// A thread of the group advances operations while its owner computes. Without the thread only the group's own calls
  /// advance operations, which is faster if the owner computes nothing meanwhile.
  bool background = false;
  Events* events = nullptr;  ///< gets each message that leaves or arrives; null: no events
  /// The clock of waits and timeouts, the same that the transport's deadlines use. Null: the system's.
  const Clock* clock = nullptr;
};

}  // namespace psring::ring
