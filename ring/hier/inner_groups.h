#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/inner_group.h>

namespace psring::ring {

/// The groups of which a hierarchical group is composed. In each inner group, stages run in the order of the calls at
/// all of its ranks. So the stages down and up need groups of their own: the network decides how many stages run down
/// before the first one runs up.
struct InnerGroups {
  std::unique_ptr<InnerGroup> down;
  std::unique_ptr<InnerGroup> up;
  std::unique_ptr<InnerGroup> links;  ///< all ranks, by messages
  std::vector<std::unique_ptr<InnerGroup>> columns;
};

/// The inner groups of the hierarchical group number `id`, without communication. `host`: any group in shared memory
/// with this host's ranks, where they have the ranks `places`; `links`: the messages between the group's ranks, whose
/// number among the groups of messages is `links_id`.
InnerGroups make_inner_groups(const Hierarchy& hierarchy, std::uint32_t id, InnerGroup& host,
                              const std::vector<std::size_t>& places, std::unique_ptr<InnerGroup> links,
                              std::uint32_t links_id);

}  // namespace psring::ring
