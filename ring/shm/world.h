#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/common/device/arena.h>
#include <psring/common/device/mapping.h>
#include <psring/ring/shm/control.h>

namespace psring::ring {

/// The bytes of an arena that groups in shared memory need for themselves: the staging memory of 128 groups. A group
/// without vectors outside of the arena costs only addresses.
inline constexpr std::size_t kShmArenaBytes = 128 * 2 * kShmCrowdedSliceBytes;

/// The memory that the ranks of one host share, as one rank sees it: the arena of every rank, and the control file
/// (control.h). All of it belongs to processes that proved the job's key.
struct ShmWorld {
  std::size_t rank = 0;
  std::shared_ptr<Arena> arena;  ///< this rank's; shared with the buffers that lie in it
  std::vector<std::shared_ptr<const Mapping>>
      mappings;  ///< mappings of the other ranks' arenas, by rank; empty for this rank
  std::shared_ptr<const Mapping> control;
  std::vector<std::size_t> workers = {};  ///< each rank's number among the job's workers; empty: the same number

  std::size_t worker(std::size_t of) const { return workers.empty() ? of : workers[of]; }
  std::size_t size() const { return mappings.size(); }
  /// The address and size of a rank's arena in this process.
  std::byte* base(std::size_t of) const { return of == rank ? arena->base() : mappings[of]->data(); }
  std::size_t capacity(std::size_t of) const { return of == rank ? arena->capacity() : mappings[of]->size(); }
};

}  // namespace psring::ring
