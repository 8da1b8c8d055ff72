#include <optional>

#include <psring/common/base/text/error.h>
#include <psring/common/net/part_transport.h>

namespace psring::net {
namespace {

class PartTransport final : public Transport {
 public:
  PartTransport(Transport& inner, Role role, MeshPart part) : inner_(inner), role_(role), part_(part) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    inner_.send(in_job(to), header, payload);
  }
  std::optional<Message> receive(Moment deadline) override {
    std::optional<Message> message = inner_.receive(deadline);
    if (message) rename(message->header);
    return message;
  }
  std::size_t in_flight_bytes(Peer peer) const override { return inner_.in_flight_bytes(in_job(peer)); }
  bool leaves_in_order(Peer peer) const override { return inner_.leaves_in_order(in_job(peer)); }
  std::size_t window_bytes(Peer peer) const override { return inner_.window_bytes(in_job(peer)); }
  void place_payloads(const Place& place) override {
    inner_.place_payloads([this, place](const FrameHeader& header) {
      FrameHeader renamed = header;
      rename(renamed);
      return place(renamed);
    });
  }
  std::string describe(Peer peer) const override { return inner_.describe(in_job(peer)); }
  void wake() override { inner_.wake(); }

 private:
  Peer in_job(Peer peer) const {
    if (peer.role != role_) return peer;
    return {peer.role, static_cast<std::uint32_t>(part_.in_job(peer.rank))};
  }
  void rename(FrameHeader& header) const {
    if (header.sender_role != role_) return;
    if (!part_.has(header.sender_rank))
      fail(ErrorKind::protocol, "{} has another part of the model", to_string(header.sender()));
    header.sender_rank = static_cast<std::uint32_t>(part_.within(header.sender_rank));
  }

  Transport& inner_;
  const Role role_;
  const MeshPart part_;
};

}  // namespace

std::unique_ptr<Transport> make_part_transport(Transport& inner, Role role, MeshPart part) {
  return std::make_unique<PartTransport>(inner, role, part);
}

}  // namespace psring::net
