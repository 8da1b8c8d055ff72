#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/ring/group_options.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/process_group.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {

/// A group through shared memory. A vector in the group's arena is reduced in place: rank r takes its r-th part of all
/// ranks' vectors, adds the parts in rank order, and stores the result into all of them, block by block while the block
/// is in cache; one barrier before, one after. So all ranks hold the same bits, the bits of a sum in rank order. A
/// vector outside of the arena goes through slices of staging memory. A vector of at most 512 bytes (4 KiB if no rank's
/// vector lies in the arena) goes through the control file, with one barrier, and each rank reduces all of it.
std::unique_ptr<InnerGroup> make_shm_group(const ShmWorld& world, GroupOptions options);

/// For tests: ranks that are threads of one process, as worlds and as groups. `ledgers`: one for each rank, or none.
std::vector<ShmWorld> make_shm_worlds(std::size_t ranks, std::size_t arena_bytes);
std::vector<std::unique_ptr<ProcessGroup>> make_shm_groups(std::size_t ranks, std::size_t arena_bytes,
                                                           const GroupOptions& options,
                                                           std::span<ByteLedger> ledgers = {});

}  // namespace psring::ring
