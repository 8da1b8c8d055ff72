#include <algorithm>

#include <psring/common/net/outbox.h>

namespace psring::net {

void Outbox::add(const Outgoing& frame) {
  if (frame.to == in_order_) return waiting_.add(frame.to, {}, frame);
  waiting_.add(frame.to,
               {.has_payload = !frame.payload.empty(), .unit = frame.header.unit, .begin = frame.header.begin}, frame);
}

std::size_t Outbox::window_of(const Transport& transport, Peer peer) const {
  const std::size_t window_bytes = std::min(window_bytes_, transport.window_bytes(peer));
  const auto weight = weights_.find(peer);
  return weight == weights_.end() ? window_bytes
                                  : static_cast<std::size_t>(weight->second * static_cast<double>(window_bytes));
}

/// Gives the transport one frame after another, to all peers in turn. If one peer's frames left together, all workers
/// would send to the same server at the same time, and its card would be the bottleneck while the others wait.
void Outbox::flush(Transport& transport) {
  waiting_.flush([&](Peer peer) { return transport.in_flight_bytes(peer) < window_of(transport, peer); },
                 [&](Peer peer, const Outgoing& frame) { transport.send(peer, frame.header, frame.payload); });
}

}  // namespace psring::net
