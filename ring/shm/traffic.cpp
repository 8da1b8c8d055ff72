#include <string>

#include <psring/common/net/frame.h>
#include <psring/ring/shm/traffic.h>

namespace psring::ring {
namespace {

constexpr std::array<Collective, kShmKinds> kCollectives = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
    Collective::barrier,    Collective::send,           Collective::recv};

}  // namespace

/// With one peer, by one operation, as both sides counted.
Moved ShmTraffic::moved_with(std::size_t peer, Collective by) const {
  const auto load = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {load(control_.stored_bytes(rank_, peer, by)) + load(control_.read_bytes(peer, rank_, by)),
          load(control_.read_bytes(rank_, peer, by)) + load(control_.stored_bytes(peer, rank_, by))};
}

Moved ShmTraffic::moved() const {
  Moved total;
  for (std::size_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    for (const Collective by : kCollectives) {
      const Moved with = moved_with(r, by);
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
    for (const Collective by : kCollectives) {
      Moved& before = accounted_[r][static_cast<std::size_t>(by)];
      const Moved now = moved_with(r, by);
      const std::string operation(by == Collective::send ? "message" : to_string(by));
      if (now.sent > before.sent) ledger.add(ByteLedger::Direction::sent, operation, peer, now.sent - before.sent, 0);
      if (now.received > before.received)
        ledger.add(ByteLedger::Direction::received, operation, peer, now.received - before.received, 0);
      before = now;
    }
  }
}

}  // namespace psring::ring
