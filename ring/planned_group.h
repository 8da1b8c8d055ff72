#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/ring/link/options.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// The ranks of a group that does not exist, and the way between them.
struct PlannedRanks {
  std::vector<std::size_t> host_of;  ///< each rank's host, as any number
  bool messages = false;  ///< between ranks of a host, too: --transport tcp, --link, or an algorithm for messages
  Tuning tuning = Tuning::built_in();
  std::optional<Algorithm> algorithm = std::nullopt;
};

/// A rank's view of a group that only predicts. It has the plans and costs of the group that RingLinks::connect makes
/// of the same ranks, without processes, links or memory. Its subgroups come from split(colours). Every operation
/// throws bug.
std::unique_ptr<ProcessGroup> make_planned_group(PlannedRanks ranks, std::size_t rank);

}  // namespace psring::ring
