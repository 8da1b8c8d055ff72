#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/common/proc/role_options.h>
#include <psring/ring/process_group.h>
#include <psring/worker/c/engine.h>

namespace psring::worker {
class TableClient;
}

namespace psring::c {

class Vector;

/// Users give ids to groups, from 1 to kMostGroups. Each group, the world (0) too, has two of the job's own: one for
/// its messages with tags.
inline constexpr std::uint32_t kMostGroups = 1U << 24;
inline constexpr std::uint32_t id_of_group(std::uint32_t id) { return 2 * id; }
inline constexpr std::uint32_t id_of_messages(std::uint32_t id) { return 2 * id + 1; }

/// A worker of a user's own program, as the C interface sees it: its membership, the group of all workers, memory that
/// other ranks reach, and the engine through which all threads use them. Safe for several threads.
class Job {
 public:
  /// Joins, and waits until all workers of the job have joined. `memory_bytes`: the capacity of `allocate`.
  Job(const RoleOptions& options, std::size_t memory_bytes);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Throws usage in a process that was forked from the process that joined: the fork has the memory, but none of the
  /// threads.
  void require_own_process() const;
  bool is_own_process() const;
  /// The same, and throws usage after `leave`.
  void require_member() const;

  ring::ProcessGroup& world();
  Engine& engine() { return *engine_; }

  /// Zeroed memory in the arena.
  std::span<std::byte> allocate(std::size_t bytes, Category category);
  /// Throws usage if `memory` is not as `allocate` returned it.
  void release(void* memory);
  /// Books more, or fewer, bytes of other memory. Throws usage if the call takes away more bytes than are booked.
  void book(Category category, std::int64_t bytes);
  const MemoryLedger& memory();

  /// Makes the vector that the job's servers own. Throws usage if there is one, or tables, or the job has no
  /// servers.
  Vector& open_vector(std::vector<UnitSpec> units);
  /// Returns the tables that the job's servers own. Throws usage if the job has a vector, or no servers.
  worker::TableClient& open_tables();

  /// The ranks of `parent`, this one among them, that form a group with this number.
  std::unique_ptr<ring::ProcessGroup> split(ring::ProcessGroup& parent, std::span<const std::uint32_t> ranks,
                                            std::uint32_t id);

  /// A collective: waits until all ranks have called it, then tells the coordinator that this worker is done. Returns
  /// false if they have not at the moment; the call may be repeated.
  bool leave(Moment until);
  /// Describes the wait of `leave`.
  std::string leaving();
  /// Ends the job with this reason, here and at all ranks.
  void abort(const std::string& reason);
  /// Throws the error that ended the job.
  void check();

 private:
  struct Memory;
  bool leave_with_all(Moment until) PSRING_REQUIRES(mutex_);
  void end_vector() PSRING_REQUIRES(mutex_);
  void link_to_servers(const std::vector<net::Member>& servers);

  const pid_t pid_;
  Membership member_;
  const std::shared_ptr<Memory> memory_;  ///< shared with the membership, whose links close first
  std::unique_ptr<Engine> engine_;
  std::set<std::uint32_t> split_ids_;  ///< of all groups so far; guarded by the engine's lock
  Mutex mutex_;
  std::atomic<bool> left_{false};
  std::map<void*, Buffer> buffers_ PSRING_GUARDED_BY(mutex_);
  std::array<std::size_t, kCategories> booked_ PSRING_GUARDED_BY(mutex_){};  ///< by `book`
  /// The barrier of `leave`; null until it is called, and after it.
  std::shared_ptr<Flight> last_barrier_ PSRING_GUARDED_BY(mutex_);
  bool told_done_ PSRING_GUARDED_BY(mutex_) = false;  ///< by `leave`: it waits for the job's end only
};

}  // namespace psring::c
