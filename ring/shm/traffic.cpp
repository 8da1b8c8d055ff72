#include <string>

#include <psring/common/net/frame.h>
#include <psring/ring/shm/traffic.h>

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

}  // namespace psring::ring
