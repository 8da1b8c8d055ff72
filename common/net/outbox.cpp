#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include <psring/common/net/outbox.h>

namespace psring::net {

void Outbox::add(const Outgoing& frame) {
  const Key key = frame.to == in_order_
                      ? Key{false, 0, 0, arrivals_++}
                      : Key{!frame.payload.empty(), frame.header.unit, frame.header.begin, arrivals_++};
  waiting_[frame.to].emplace(key, frame);
}

std::size_t Outbox::window_of(const Transport& transport, Peer peer) const {
  const std::size_t window_bytes = std::min(window_bytes_, transport.window_bytes(peer));
  const auto weight = weights_.find(peer);
  return weight == weights_.end() ? window_bytes
                                  : static_cast<std::size_t>(weight->second * static_cast<double>(window_bytes));
}

/// Sends to the only peer for which frames wait: no turns to take.
void Outbox::flush_one(Transport& transport) {
  auto& [peer, frames] = *waiting_.begin();
  const std::size_t window_bytes = window_of(transport, peer);
  while (!frames.empty() && transport.in_flight_bytes(peer) < window_bytes) {
    const Outgoing frame = frames.begin()->second;
    frames.erase(frames.begin());
    transport.send(peer, frame.header, frame.payload);
  }
  if (frames.empty()) waiting_.clear();
}

/// Gives the transport one frame after another, to all peers in turn. If one peer's frames left together, all workers
/// would send to the same server at the same time, and its card would be the bottleneck while the others wait.
void Outbox::flush(Transport& transport) {
  using Turn = std::pair<Urgency, Peer>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  const auto take_turn = [&](Peer peer, const std::map<Key, Outgoing>& frames) {
    if (frames.empty() || transport.in_flight_bytes(peer) >= window_of(transport, peer)) return;
    const auto& [has_payload, unit, begin, arrival] = frames.begin()->first;
    turns.push({{has_payload, unit, arrival}, peer});
  };
  if (waiting_.size() == 1) return flush_one(transport);
  for (const auto& [peer, frames] : waiting_) take_turn(peer, frames);
  while (!turns.empty()) {
    const Peer peer = turns.top().second;
    turns.pop();
    std::map<Key, Outgoing>& frames = waiting_[peer];
    const Outgoing frame = frames.begin()->second;
    frames.erase(frames.begin());
    transport.send(peer, frame.header, frame.payload);
    take_turn(peer, frames);
  }
  std::erase_if(waiting_, [](const auto& queue) { return queue.second.empty(); });
}

}  // namespace psring::net
