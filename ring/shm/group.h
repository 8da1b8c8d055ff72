#pragma once

#include <memory>

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

}  // namespace psring::ring
