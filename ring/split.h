#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/ring/process_group.h>
#include <psring/ring/request.h>

namespace psring::ring {

/// The result of a split for the calling rank.
struct Split {
  std::uint32_t id = 0;            ///< of the new group; unique among all groups that share a rank with it
  std::vector<std::size_t> ranks;  ///< of the old group, in the order of the new group
  std::size_t rank = 0;            ///< the caller's, in the new group
  std::uint32_t next_group = 0;    ///< the first number that is free now
};

/// A collective of `group`: every rank broadcasts its colour, its key and the first group number that it knows to be
/// free. The new groups have no rank in common, and all take the largest of these numbers. These few bytes count as
/// control, and are not traced.
Split agree_on_split(ProcessGroup& group, std::uint32_t colour, std::uint32_t key, std::uint32_t next_group);

/// The split by colours that all ranks know, in rank order.
Split split_by_colours(std::span<const std::size_t> colours, std::size_t rank, std::uint32_t next_group);

/// A checked broadcast. REQUIRES: root is a rank of the group.
inline Request broadcast_request(Vector data, std::size_t root) {
  return {{Collective::broadcast, {}, data.type, static_cast<std::uint32_t>(root), data.count, 0}, data};
}

}  // namespace psring::ring
