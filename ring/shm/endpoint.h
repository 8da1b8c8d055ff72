#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/request.h>
#include <psring/ring/shm/bells.h>
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
  /// Memory order: relaxed, since the counters are figures of their own; they are read when the operations are over.
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

/// The error that ended a group. The rank that finds the first error writes it into the group's header, where all ranks
/// read it, so that all ranks report the first cause.
class ShmFailure {
 public:
  ShmFailure(ShmGroupHeader& header, ShmBells& bells) : header_(header), bells_(bells) {}

  /// Throws the error if this rank knows of one.
  void rethrow() const {
    if (error_) throw *error_;
  }
  /// The same, but looks into the header first.
  void check();
  /// Ends the group here and at its other ranks. Does nothing if it has ended already.
  void break_off(const Error& error) noexcept;
  [[noreturn]] void end(const Error& error) {
    break_off(error);
    throw error;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  ShmGroupHeader& header_;
  ShmBells& bells_;
  std::optional<Error> error_;
};

/// One rank's end of a group: the memory and the shared words that its operations and messages work with.
class ShmEndpoint {
 public:
  /// `members`: the ranks of the world that form the group; `names`: their ranks in errors, or empty; `id`: the number
  /// of the group in the control file.
  ShmEndpoint(const ShmWorld& world, std::vector<std::size_t> members, std::vector<std::size_t> names, std::size_t id);
  ~ShmEndpoint();
  ShmEndpoint(const ShmEndpoint&) = delete;
  ShmEndpoint& operator=(const ShmEndpoint&) = delete;

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return members_.size(); }
  /// A rank as errors name it.
  std::size_t name(std::size_t rank) const { return names_.empty() ? rank : names_[rank]; }
  const ShmWorld& world() const { return world_; }
  const std::vector<std::size_t>& members() const { return members_; }
  /// Are there more ranks than processors?
  bool crowded() const { return crowded_; }

  Arena& arena() const { return *world_.arena; }
  /// The address and size of a rank's arena in this process.
  std::byte* base(std::size_t rank) const { return world_.base(members_[rank]); }
  std::size_t capacity(std::size_t rank) const { return world_.capacity(members_[rank]); }
  /// Two slices in this rank's arena, for vectors that lie elsewhere.
  std::span<std::byte> staging() const { return staging_; }

  const ShmControl& control() const { return control_; }
  ShmRank& own() const { return control_.rank(rank_); }
  ShmBells& bells() { return bells_; }
  ShmTraffic& traffic() { return traffic_; }
  const ShmTraffic& traffic() const { return traffic_; }
  ShmFailure& failure() { return failure_; }
  const ShmFailure& failure() const { return failure_; }
  /// Ends the group if a peer called another operation.
  void check_call(std::size_t peer, const Call& theirs, const Announced& ours);

 private:
  const ShmWorld world_;
  const std::vector<std::size_t> members_;
  const std::vector<std::size_t> names_;
  const std::size_t rank_;
  const bool crowded_;
  const ShmControl control_;
  const std::span<std::byte> staging_;
  ShmBells bells_;
  ShmTraffic traffic_;
  ShmFailure failure_;
};

}  // namespace psring::ring
