#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/process_group.h>
#include <psring/ring/shm_memory.h>

namespace psring::ring {

struct GroupOptions {
  std::function<void()> check;  ///< throws where the job has failed or a peer is lost; called while waiting
  Nanoseconds op_timeout{0};    ///< for one wait; 0: as long as the peers live
  /// Counts what passes through shared memory, whenever `account` is called; links have ledgers of their own.
  ByteLedger* ledger = nullptr;
};

/// A group through shared memory. A vector in the group's arena is reduced where it lies: rank r takes its r-th part
/// of all ranks' vectors, adds them in rank order, and stores the result into all of them, a block at a time while
/// it is in cache; one barrier before, one after. So all ranks hold the same bits, and those of a sum in rank order.
/// Any other vector goes through slices of staging memory; one of at most kShmCopiedBytes (of kShmSlotBytes where no
/// rank's lies in the arena) through the control file, with one barrier, and each rank reduces all of it.
std::unique_ptr<InnerGroup> make_shm_group(const ShmWorld& world, GroupOptions options);

/// Ranks that are threads of one process, for tests: the world as each sees it, and groups of one. `ledgers`: one a
/// rank, or none.
std::vector<ShmWorld> make_shm_worlds(std::size_t ranks, std::size_t arena_bytes);
std::vector<std::unique_ptr<ProcessGroup>> make_shm_groups(std::size_t ranks, std::size_t arena_bytes,
                                                           const GroupOptions& options,
                                                           std::span<ByteLedger> ledgers = {});

}  // namespace psring::ring
