#include <array>
#include <map>
#include <string>
#include <utility>

#include <psring/common/net/reporting.h>

namespace psring::net {
namespace {

class Reporting final : public Transport {
 public:
  Reporting(Transport& inner, Events& events) : inner_(inner), events_(events) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (events_.detailed()) report(false, to, header, payload.size());
    inner_.send(to, header, payload);
  }
  std::optional<Message> receive(Moment deadline) override {
    std::optional<Message> message = inner_.receive(deadline);
    if (message && events_.detailed()) report(true, message->header.sender(), message->header, message->payload.size());
    return message;
  }
  std::size_t in_flight_bytes(Peer peer) const override { return inner_.in_flight_bytes(peer); }
  bool leaves_in_order(Peer peer) const override { return inner_.leaves_in_order(peer); }
  std::size_t window_bytes(Peer peer) const override { return inner_.window_bytes(peer); }
  void place_payloads(const Place& place) override { inner_.place_payloads(place); }
  std::string describe(Peer peer) const override { return inner_.describe(peer); }
  void wake() override { inner_.wake(); }

 private:
  struct PeerState {
    std::string name;
    std::array<std::uint64_t, 2> frames = {};  ///< number of frames: sent, received
  };

  void report(bool arrived, Peer peer, const FrameHeader& header, std::size_t bytes) {
    PeerState& state = peers_[peer];
    const std::uint64_t number = state.frames[arrived ? 1 : 0]++;
    if (bytes == 0 && header.type != FrameType::pull) return;
    if (state.name.empty()) state.name = to_string(peer);
    events_.detail(FrameMoved{.arrived = arrived,
                              .operation = to_string(header.type),
                              .peer = state.name,
                              .number = number,
                              .unit = header.unit,
                              .range = header.range(),
                              .bytes = bytes,
                              .version = header.version});
  }

  Transport& inner_;
  Events& events_;
  std::map<Peer, PeerState> peers_;
};

}  // namespace

std::unique_ptr<Transport> make_reporting(Transport& inner, Events& events) {
  return std::make_unique<Reporting>(inner, events);
}

}  // namespace psring::net
