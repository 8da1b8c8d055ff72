#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/mapping.h>
#include <psring/ring/group_options.h>
#include <psring/ring/process_group.h>
#include <psring/ring/shm/control.h>
#include <psring/ring/shm/group.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {

/// Returns the worlds of ranks that are threads of one process.
inline std::vector<ShmWorld> make_shm_worlds(std::size_t ranks, std::size_t arena_bytes) {
  const auto control = std::make_shared<const Mapping>(ShmControl::file_bytes(ranks));
  std::vector<std::shared_ptr<Arena>> arenas;
  for (std::size_t r = 0; r < ranks; ++r) arenas.push_back(std::make_shared<Arena>(arena_bytes));
  std::vector<ShmWorld> worlds;
  for (std::size_t r = 0; r < ranks; ++r) {
    ShmWorld world{r, arenas[r], std::vector<std::shared_ptr<const Mapping>>(ranks), control};
    for (std::size_t q = 0; q < ranks; ++q)
      if (q != r) world.mappings[q] = std::make_shared<const Mapping>(arenas[q]->file(), arenas[q]->capacity());
    worlds.push_back(std::move(world));
  }
  return worlds;
}

/// Returns their groups. `ledgers`: one for each rank, or none.
inline std::vector<std::unique_ptr<ProcessGroup>> make_shm_groups(std::size_t ranks, std::size_t arena_bytes,
                                                                  const GroupOptions& options,
                                                                  std::span<ByteLedger> ledgers = {}) {
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (const ShmWorld& world : make_shm_worlds(ranks, arena_bytes)) {
    GroupOptions own = options;
    if (!ledgers.empty()) own.ledger = &ledgers[world.rank];
    groups.push_back(make_shm_group(world, std::move(own)));
  }
  return groups;
}

}  // namespace psring::ring
