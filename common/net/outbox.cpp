#include <algorithm>

#include <psring/common/net/outbox.h>

namespace psring::net {

void Outbox::add(const Outgoing& frame) {
  const Key key = frame.to == in_order_
                      ? Key{false, 0, 0, arrivals_++}
                      : Key{!frame.payload.empty(), frame.header.unit, frame.header.begin, arrivals_++};
  waiting_[frame.to].emplace(key, frame);
}

void Outbox::flush(Transport& transport) {
  for (auto queue = waiting_.begin(); queue != waiting_.end();) {
    auto& [peer, frames] = *queue;
    const std::size_t window_bytes = std::min(window_bytes_, transport.window_bytes(peer));
    while (!frames.empty() && transport.in_flight_bytes(peer) < window_bytes) {
      const Outgoing frame = frames.begin()->second;
      frames.erase(frames.begin());
      transport.send(peer, frame.header, frame.payload);
    }
    queue = frames.empty() ? waiting_.erase(queue) : std::next(queue);
  }
}

}  // namespace psring::net
