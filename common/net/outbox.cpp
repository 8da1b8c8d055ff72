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
  do
    waiting_.flush([&](Peer peer) { return has_room(transport, peer); },
                   [&](Peer peer, const Outgoing& frame) { give(transport, peer, frame); });
  while (release(transport));
}

/// Sends held frames. Returns whether there is more room for frames to the own server.
bool Outbox::release(Transport& transport) {
  if (held_.empty()) return false;
  std::uint64_t in_flight = 0;
  for (const auto& [peer, window] : others_) in_flight += transport.in_flight_bytes(peer);
  return held_.flush(in_flight, own_window(),
                     [&](const Outgoing& frame) { transport.send(frame.to, frame.header, frame.payload); });
}

bool Outbox::has_room(const Transport& transport, Peer peer) const {
  if (peer == own_) return held_.bytes() < own_window();
  return transport.in_flight_bytes(peer) < window_of(transport, peer);
}

std::size_t Outbox::own_window() const {
  std::size_t window = window_bytes_;
  for (const auto& [other, its_window] : others_) window = std::min(window, its_window);
  return window;
}

void Outbox::give(Transport& transport, Peer peer, const Outgoing& frame) {
  if (own_ && !frame.payload.empty()) {
    if (peer == own_) return held_.hold(frame, frame.payload.size());
    others_[peer] = window_of(transport, peer);
    held_.pass(frame.payload.size());
  }
  transport.send(peer, frame.header, frame.payload);
}

}  // namespace psring::net
