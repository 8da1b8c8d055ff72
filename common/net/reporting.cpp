#include <array>
#include <string>
#include <vector>

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
  /// Returns the number of the frame, in its direction.
  std::uint64_t count(bool arrived, Peer peer) {
    auto& ranks = frames_[static_cast<std::size_t>(peer.role)];
    if (ranks.size() <= peer.rank) ranks.resize(peer.rank + std::size_t{1});
    return ranks[peer.rank][arrived ? 1 : 0]++;
  }

  /// Returns the step that a frame is part of. Both ends find the same one, but for verdicts and frames between
  /// workers, whose headers do not name it.
  std::uint64_t step_of(const FrameHeader& header) const {
    switch (header.type) {
      case FrameType::verdict:
      case FrameType::all_reduce:
      case FrameType::reduce_scatter:
      case FrameType::all_gather:
      case FrameType::broadcast:
      case FrameType::barrier:
      case FrameType::message:
        return events_.step();
      default:
        return header.step;
    }
  }

  void report(bool arrived, Peer peer, const FrameHeader& header, std::size_t bytes) {
    const std::uint64_t number = count(arrived, peer);
    if (bytes == 0 && header.type != FrameType::pull) return;
    const std::uint64_t step = step_of(header);
    if (!events_.wants_details(step)) return;
    events_.instant(FrameMoved{.arrived = arrived,
                               .unit = header.unit,
                               .operation = to_string(header.type),
                               .peer = name_of(peer),
                               .number = number,
                               .range = header.range(),
                               .bytes = bytes,
                               .version = header.version},
                    step);
  }

  Transport& inner_;
  Events& events_;
  std::array<std::vector<std::array<std::uint64_t, 2>>, 4> frames_ = {};  ///< by role and rank: sent, received
};

}  // namespace

std::unique_ptr<Transport> make_reporting(Transport& inner, Events& events) {
  return std::make_unique<Reporting>(inner, events);
}

}  // namespace psring::net
