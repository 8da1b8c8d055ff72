#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <psring/common/net/transport.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/link/options.h>

namespace psring::ring {

/// A group whose ranks exchange messages: worker r of the transport is rank r. The sum's order is the plan's: rank
/// order for exchange and star; for the other algorithms each part has its own order, the same at every run. All ranks
/// hold the same bits. The transport belongs to the group alone from here on, and outlives the group and its subgroups.
std::unique_ptr<InnerGroup> make_link_group(net::Transport& transport, std::size_t rank, std::size_t ranks,
                                            LinkOptions options);

/// Makes a part of a link group (InnerGroup::part) whose ranks send directly to each other, for vectors of any size and
/// with any options, as ranks that share memory read directly from each other. The parts of this part do the same.
std::unique_ptr<InnerGroup> make_direct_part(InnerGroup& links, const std::vector<std::size_t>& ranks,
                                             std::uint32_t id);

}  // namespace psring::ring
