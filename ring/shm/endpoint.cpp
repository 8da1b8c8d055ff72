#include <algorithm>
#include <utility>

#include <psring/common/base/processors.h>
#include <psring/ring/shm/endpoint.h>

namespace psring::ring {
namespace {

std::size_t place_of(std::size_t rank, const std::vector<std::size_t>& members) {
  return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

ShmEndpoint::ShmEndpoint(const ShmWorld& world, std::vector<std::size_t> members, std::vector<std::size_t> names,
                         std::size_t id)
    : world_(world),
      members_(std::move(members)),
      names_(std::move(names)),
      rank_(place_of(world.rank, members_)),
      crowded_(world.size() > usable_processors()),
      control_(world.control->data(), world.size(), id, members_),
      staging_(world.arena->allocate(2 * (crowded_ ? kShmCrowdedSliceBytes : kShmSliceBytes))),
      bells_(ShmControl(world.control->data(), world.size(), 0, members_), rank_, members_.size(), crowded_),
      traffic_(control_, rank_, members_.size(), crowded_),
      failure_(control_.header(), bells_) {}

ShmEndpoint::~ShmEndpoint() { world_.arena->free(staging_); }

void ShmEndpoint::check_call(std::size_t peer, const Call& theirs, const Announced& ours) {
  if (theirs == ours.call) return;
  failure_.end(Error(ErrorKind::usage, mismatch(ours.number, name(rank_), ours.call, name(peer), theirs)));
}

}  // namespace psring::ring
