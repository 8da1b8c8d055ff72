#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/net/transport.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/plan.h>
#include <psring/ring/process_group.h>
#include <psring/ring/shm_group.h>
#include <psring/ring/tuning.h>

namespace psring::ring {

struct LinkOptions {
  GroupOptions group;
  Tuning tuning;
  std::optional<Algorithm> algorithm;  ///< for all all-reduces; none: as the tuning says
  /// Bytes of a message; 0: as the tuning says.
  std::size_t segment_bytes = 0;
  /// A thread of the group's own goes on with operations while its owner computes. Without it they go on in the
  /// group's calls alone, which is faster where nothing is computed meanwhile.
  bool background = false;
  /// What waits and timeouts are measured by: where the transport's deadlines come from. Null: the system's.
  const Clock* clock = nullptr;
};

/// A group whose ranks exchange messages: worker r of the transport is rank r. Sums run in the order of the plan
/// (exchange, star: in rank order; ring, halving-doubling: each part in an order of its own, the same at every run),
/// and all ranks hold the same bits.
/// The transport is the group's alone from here on, and outlives it and its subgroups.
std::unique_ptr<InnerGroup> make_link_group(net::Transport& transport, std::size_t rank, std::size_t ranks,
                                            LinkOptions options);

}  // namespace psring::ring
