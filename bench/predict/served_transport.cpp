#include <vector>

#include <psring/bench/predict/served_transport.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::bench {

/// As worker::PsClient sets its outbox up.
ServedTransport::ServedTransport(const TimedJob& job, const ServedPlaces& places, const ServedPieces& pieces,
                                 ServedCards& cards, net::Peer self)
    : places_(places), pieces_(pieces), cards_(cards), self_(self) {
  if (self.role == net::Role::server) return;
  const std::vector<double> windows = worker::window_weights(job.work.layout.weights);
  for (std::uint32_t rank = 0; rank < places.servers(); ++rank) {
    const net::Peer server{net::Role::server, rank};
    if (places.process_of(places.place_of(server)) == places.place_of(self)) outbox_.hold(server);
    if (!windows.empty()) outbox_.set_weight(server, windows[places.rank_of(rank)]);
  }
}

const ServedPiece& ServedTransport::piece_of(net::Peer to, const net::FrameHeader& header) const {
  const net::Peer server = to.role == net::Role::server ? to : self_;
  return pieces_.of(places_.is_standalone(server.rank))[header.begin];
}

void ServedTransport::add(net::Peer to, net::FrameHeader header) {
  const ServedPiece& piece = piece_of(to, header);
  header.unit = static_cast<std::uint32_t>(piece.unit);
  header.sender_role = self_.role;
  header.sender_rank = self_.rank;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nobody reads
  const auto* const nowhere = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40);
  outbox_.add({to, header, {nowhere, static_cast<std::size_t>(piece.payload_bytes(header.type))}});
}

void ServedTransport::send(net::Peer to, net::FrameHeader header, std::span<const std::byte> /*payload*/) {
  const ServedPiece& piece = piece_of(to, header);
  const bool is_short = header.type == net::FrameType::push_ack;
  cards_.send({header, to, piece.payload_bytes(header.type), is_short ? 1 : piece.frames}, now_);
}

}  // namespace psring::bench
