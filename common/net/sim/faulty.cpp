#include <map>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/rng.h>
#include <psring/common/net/sim/faulty.h>
#include <psring/common/net/sim/reliable.h>

namespace psring::net {
namespace {

constexpr std::uint64_t kDraws = 8;  ///< the number of draws per frame

class Faulty final : public Transport {
 public:
  Faulty(Transport& inner, Peer self, const FrameFaults& faults)
      : inner_(inner),
        faults_(faults),
        rng_({.seed = faults.seed,
              .purpose = Purpose::fault,
              .micro = static_cast<std::uint16_t>(self.role),
              .rank = static_cast<std::uint16_t>(self.rank)}) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    ++frames_;
    if (inner_.in_flight_bytes(to) == 0) copies_.erase(to);
    const auto copy = [&] { return Bytes(payload.begin(), payload.end()); };
    if (happens(0, faults_.drop)) return;
    if (happens(1, faults_.reorder)) {
      held_[to].push_back({header, copy()});
      return;
    }
    if (happens(2, faults_.corrupt)) {
      Bytes changed = copy();
      FrameHeader other = header;
      corrupt(other, changed);
      send_copy(to, other, std::move(changed));
    } else {
      inner_.send(to, header, payload);
    }
    if (happens(3, faults_.duplicate)) send_copy(to, header, copy());
    for (Held& held : std::exchange(held_[to], {})) send_copy(to, held.header, std::move(held.payload));
  }

  std::optional<Message> receive(Moment deadline) override { return inner_.receive(deadline); }
  std::size_t in_flight_bytes(Peer peer) const override { return inner_.in_flight_bytes(peer); }
  bool leaves_in_order(Peer peer) const override { return inner_.leaves_in_order(peer); }
  std::size_t window_bytes(Peer peer) const override { return inner_.window_bytes(peer); }
  void place_payloads(const Place& place) override { inner_.place_payloads(place); }
  std::string describe(Peer peer) const override { return inner_.describe(peer) + ", faulty"; }
  void wake() override { inner_.wake(); }

 private:
  using Bytes = std::vector<std::byte>;
  struct Held {
    FrameHeader header;
    Bytes payload;
  };

  bool happens(std::uint64_t draw, double probability) const { return uniform(draw) < probability; }
  float uniform(std::uint64_t draw) const { return rng_.uniform(frames_ * kDraws + draw); }
  /// Sends a copy that is kept until it has left. The sender may free its own payload earlier, once the other copy was
  /// answered.
  void send_copy(Peer to, const FrameHeader& header, Bytes payload) {
    const Bytes& kept = copies_[to].emplace_back(std::move(payload));
    inner_.send(to, header, kept);
  }

  void corrupt(FrameHeader& header, Bytes& payload) const {
    if (payload.empty()) {
      header.step ^= std::uint64_t{1} << (rng_.bits(frames_ * kDraws + 4) % 64);
      return;
    }
    const std::size_t bit = rng_.bits(frames_ * kDraws + 4) % (payload.size() * 8);
    payload[bit / 8] ^= std::byte{1} << (bit % 8);
  }

  Transport& inner_;
  const FrameFaults faults_;
  const CounterRng rng_;
  std::uint64_t frames_ = 0;
  std::map<Peer, std::vector<Held>> held_;
  std::map<Peer, std::vector<Bytes>> copies_;
};

/// The layers under the reliable transport. Each member uses the members before it.
struct Disturbed {
  const SystemClock clock{};
  ByteLedger beneath;
  std::unique_ptr<Transport> links;
  std::unique_ptr<Transport> faulty;
};

}  // namespace

std::unique_ptr<Transport> make_disturbed_transport(
    const Identity& self, const FrameFaults& faults, ByteLedger& ledger,
    const std::function<std::unique_ptr<Transport>(ByteLedger&)>& make_links) {
  const auto below = std::make_shared<Disturbed>();
  below->links = make_links(below->beneath);
  below->faulty = make_faulty_transport(*below->links, self.peer, faults);
  return make_reliable_transport({below, below->faulty.get()},
                                 // All members of an epoch have the same incarnation.
                                 {.link = {.incarnation = self.incarnation, .peer_incarnation = self.incarnation},
                                  .clock = &below->clock,
                                  .ledger = &ledger});
}

std::unique_ptr<Transport> make_faulty_transport(Transport& inner, Peer self, const FrameFaults& faults) {
  return std::make_unique<Faulty>(inner, self, faults);
}

}  // namespace psring::net
