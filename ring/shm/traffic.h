#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/ring/request.h>
#include <psring/ring/shm/control.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {

/// The kind of bytes that an operation counts.
inline std::size_t shm_kind(const Announced& said) {
  return said.control ? kShmControl : static_cast<std::size_t>(said.call.collective);
}

/// Counts the bytes that pass through shared memory. Bytes that are read from, or stored to, another process's memory
/// count as sent by their origin. The counters lie in the control file, as a rank also counts for the ranks whose share
/// of the work it does.
class ShmTraffic {
 public:
  /// `crowded`: several ranks may update one rank's counters.
  ShmTraffic(const ShmControl& control, std::size_t rank, std::size_t size, bool crowded)
      : control_(control), rank_(rank), size_(size), crowded_(crowded) {}

  /// Rank `of` has read from the memory of `peer`, or stored there.
  void add_read(std::size_t of, std::size_t peer, std::size_t kind, std::size_t bytes) {
    add(of, control_.read_bytes(of, peer, kind), bytes);
  }
  void add_stored(std::size_t of, std::size_t peer, std::size_t kind, std::size_t bytes) {
    add(of, control_.stored_bytes(of, peer, kind), bytes);
  }

  Moved moved() const;
  /// Adds the bytes since the last call to the ledger, by peer and operation. `members`: the group's ranks in the
  /// world.
  void account(ByteLedger& ledger, const ShmWorld& world, const std::vector<std::size_t>& members);

 private:
  void add(std::size_t of, std::atomic<std::uint64_t>& counter, std::size_t bytes) const {
    if (crowded_ || of != rank_)
      counter.fetch_add(bytes, std::memory_order_relaxed);
    else
      counter.store(counter.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  Moved moved_with(std::size_t peer, std::size_t kind) const;

  const ShmControl& control_;
  const std::size_t rank_;
  const std::size_t size_;
  const bool crowded_;
  std::vector<std::array<Moved, kShmKinds>> accounted_;  ///< with each rank, by kind
};

}  // namespace psring::ring
