#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/ring/process_group.h>

namespace psring::ring {

/// What a split comes to for the rank that asked.
struct Split {
  std::uint32_t id = 0;            ///< of the new group, among all that any of its ranks is in
  std::vector<std::size_t> ranks;  ///< of the old group, in the new one's order
  std::size_t rank = 0;            ///< the asker's, in the new group
  std::uint32_t next_group = 0;    ///< the first number that is free now
};

/// A collective of `group`: all ranks tell colour, key and the first group number that they think is free; the new
/// groups, which have no rank in common, all get the largest of those. Few bytes, and control: each rank broadcasts its
/// own.
Split agree_on_split(ProcessGroup& group, std::uint32_t colour, std::uint32_t key, std::uint32_t next_group);

}  // namespace psring::ring
