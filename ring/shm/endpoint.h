#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/ring/request.h>
#include <psring/ring/shm/bells.h>
#include <psring/ring/shm/control.h>
#include <psring/ring/shm/failure.h>
#include <psring/ring/shm/traffic.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {

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
