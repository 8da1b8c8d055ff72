#include <psring/common/net/outbox.h>

namespace psring::net {

void Outbox::add(const Outgoing& frame) {
  waiting_[frame.to].emplace(Key{!frame.payload.empty(), frame.header.unit, frame.header.begin, arrivals_++}, frame);
}

void Outbox::flush(Transport& transport) {
  for (auto queue = waiting_.begin(); queue != waiting_.end();) {
    auto& [peer, frames] = *queue;
    while (!frames.empty() && transport.in_flight_bytes(peer) < window_bytes_) {
      const Outgoing frame = frames.begin()->second;
      frames.erase(frames.begin());
      transport.send(peer, frame.header, frame.payload);
    }
    queue = frames.empty() ? waiting_.erase(queue) : std::next(queue);
  }
}

}  // namespace psring::net
