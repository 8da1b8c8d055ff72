#include <optional>
#include <span>
#include <string>

#include <psring/bench/cost/served_outbox.h>
#include <psring/worker/server_weights.h>

namespace psring::bench {
namespace {

net::Peer peer_of(bool server, std::size_t rank) {
  return {server ? net::Role::server : net::Role::worker, static_cast<std::uint32_t>(rank)};
}

}  // namespace

/// The card, as net::Outbox sees it at one moment.
class ServedOutbox::Room final : public net::Transport {
 public:
  Room(ServedOutbox& outbox, double now) : outbox_(outbox), now_(now) {}

  void send(net::Peer /*to*/, net::FrameHeader header, std::span<const std::byte> /*payload*/) override {
    const auto index = static_cast<std::uint32_t>(header.sequence);
    outbox_.unused_.push_back(index);
    outbox_.cards_.send(outbox_.frames_[index], outbox_.to_servers_, now_);
  }
  std::optional<net::Message> receive(Moment /*deadline*/) override { return std::nullopt; }
  std::size_t in_flight_bytes(net::Peer peer) const override {
    return outbox_.cards_.in_flight_bytes(outbox_.place_, place_of(peer));
  }
  std::size_t window_bytes(net::Peer peer) const override {
    return outbox_.cards_.window_bytes(outbox_.place_, place_of(peer));
  }
  std::string describe(net::Peer peer) const override { return to_string(peer); }
  void wake() override {}

 private:
  std::size_t place_of(net::Peer peer) const {
    return outbox_.to_servers_ ? outbox_.cards_.place_of_server(peer.rank) : peer.rank;
  }

  ServedOutbox& outbox_;
  const double now_;
};

ServedOutbox::ServedOutbox(ServedCards& cards, std::size_t place, bool to_servers, const std::vector<double>& windows)
    : cards_(cards), place_(place), to_servers_(to_servers) {
  for (std::size_t server = 0; server < windows.size(); ++server)
    outbox_.set_weight(peer_of(true, server), windows[server]);
}

void ServedOutbox::add(const ServedFrame& frame, std::size_t unit) {
  static constexpr std::byte kPayload{};  // says that there is one
  std::uint32_t index = static_cast<std::uint32_t>(frames_.size());
  if (unused_.empty()) {
    frames_.push_back(frame);
  } else {
    index = unused_.back();
    unused_.pop_back();
    frames_[index] = frame;
  }
  net::FrameHeader header;
  header.unit = static_cast<std::uint32_t>(unit);
  header.begin = frame.piece;
  header.sequence = index;
  outbox_.add({peer_of(to_servers_, to_servers_ ? frame.server : frame.worker),
               header,
               {&kPayload, frame.bytes > 0 ? std::size_t{1} : std::size_t{0}}});
}

void ServedOutbox::flush(double now) {
  if (outbox_.empty()) return;
  Room room(*this, now);
  outbox_.flush(room);
}

std::vector<ServedOutbox> make_served_outboxes(const TimedJob& job, const ServedPlaces& places, ServedCards& cards) {
  const std::vector<double> all = worker::window_weights(job.work.layout.weights);
  std::vector<double> windows;
  for (std::size_t server = 0; server < places.servers() && !all.empty(); ++server)
    windows.push_back(all[places.rank_of(server)]);
  std::vector<ServedOutbox> outboxes;
  for (std::size_t place = 0; place < places.count(); ++place) {
    const bool worker = places.is_worker(place);
    outboxes.emplace_back(cards, place, worker, worker ? windows : std::vector<double>());
  }
  return outboxes;
}

}  // namespace psring::bench
