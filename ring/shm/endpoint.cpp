#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include <psring/common/base/system/processors.h>
#include <psring/common/net/frame.h>
#include <psring/ring/shm/endpoint.h>

namespace psring::ring {
namespace {

/// The name of a kind in the byte ledger, as transports name it that send frames.
std::string name_of_kind(std::size_t kind) {
  if (kind == kShmControl) return "start-up";
  const auto collective = static_cast<Collective>(kind);
  return std::string(collective == Collective::send ? "message" : to_string(collective));
}

}  // namespace

/// With one peer, of one kind, as both sides counted.
Moved ShmTraffic::moved_with(std::size_t peer, std::size_t kind) const {
  const auto load = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {load(control_.stored_bytes(rank_, peer, kind)) + load(control_.read_bytes(peer, rank_, kind)),
          load(control_.read_bytes(rank_, peer, kind)) + load(control_.stored_bytes(peer, rank_, kind))};
}

Moved ShmTraffic::moved() const {
  Moved total;
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    for (std::size_t kind = 0; kind < kShmKinds; ++kind) {
      const Moved with = moved_with(r, kind);
      total.sent += with.sent;
      total.received += with.received;
    }
  }
  return total;
}

void ShmTraffic::account(ByteLedger& ledger, const ShmWorld& world, const std::vector<std::size_t>& members) {
  accounted_.resize(size_);
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const std::string peer =
        net::to_string(net::Peer{net::Role::worker, static_cast<std::uint32_t>(world.worker(members[r]))});
    for (std::size_t kind = 0; kind < kShmKinds; ++kind) {
      Moved& before = accounted_[r][kind];
      const Moved now = moved_with(r, kind);
      const std::string operation = name_of_kind(kind);
      if (now.sent > before.sent) ledger.add(ByteLedger::Direction::sent, operation, peer, now.sent - before.sent, 0);
      if (now.received > before.received)
        ledger.add(ByteLedger::Direction::received, operation, peer, now.received - before.received, 0);
      before = now;
    }
  }
}

/// Memory order: kind and text are written before 2 is released, and read after it was acquired.
void ShmFailure::check() {
  if (!error_ && header_.broken.load(std::memory_order_acquire) == 2)
    error_ = Error(static_cast<ErrorKind>(header_.kind), header_.text);
  rethrow();
}

void ShmFailure::break_off(const Error& error) noexcept {
  if (error_) return;
  error_ = error;
  std::uint32_t whole = 0;
  if (header_.broken.compare_exchange_strong(whole, 1)) {
    header_.kind = static_cast<std::uint32_t>(error.kind());
    std::strncpy(header_.text, error.what(), kShmTextBytes - 1);
    header_.broken.store(2, std::memory_order_release);
    bells_.ring();
  }
}

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
  failure_.end(mismatch(ours.number, name(rank_), ours.call, name(peer), theirs));
}

}  // namespace psring::ring
