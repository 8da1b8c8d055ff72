#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace psring::net {

/// Frames that wait for room on the way to their peers, in the order of Outbox: frames without payload, then units in
/// forward order, then the order of arrival; the frames to one peer by their begin in a unit, before the order of
/// arrival. Peers take turns. `Peer` is ordered.
template <class Peer, class Frame>
class TurnQueue {
 public:
  /// A frame's place in the order.
  struct Place {
    bool has_payload = false;
    std::uint32_t unit = 0;
    std::uint64_t begin = 0;
  };

  void add(const Peer& to, const Place& place, Frame frame) {
    std::vector<Waiting>& frames = waiting_[to];
    frames.push_back({{place.has_payload, place.unit, place.begin, arrivals_++}, std::move(frame)});
    std::push_heap(frames.begin(), frames.end(), std::greater<>());
    ++count_;
  }
  bool empty() const { return count_ == 0; }

  /// Sends frames while there is room: `has_room(peer)` says whether there is, `send(peer, frame)` takes some of it.
  template <class HasRoom, class Send>
  void flush(HasRoom has_room, Send send) {
    if (empty()) return;
    turns_.clear();
    for (auto& [peer, frames] : waiting_) take_turn(peer, frames, has_room);
    while (!turns_.empty()) {
      std::pop_heap(turns_.begin(), turns_.end(), std::greater<>());
      const Turn turn = turns_.back();
      turns_.pop_back();
      std::pop_heap(turn.frames->begin(), turn.frames->end(), std::greater<>());
      const Frame frame = std::move(turn.frames->back().frame);
      turn.frames->pop_back();
      --count_;
      send(*turn.peer, frame);
      take_turn(*turn.peer, *turn.frames, has_room);
    }
  }

 private:
  using Key = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint64_t>;  // has payload, unit, begin, arrival
  using Urgency = std::tuple<bool, std::uint32_t, std::uint64_t>;             // has payload, unit, arrival
  struct Waiting {
    Key key;
    Frame frame;
    bool operator>(const Waiting& other) const { return key > other.key; }
  };
  struct Turn {
    Urgency urgency;
    const Peer* peer;
    std::vector<Waiting>* frames;
    bool operator>(const Turn& other) const { return std::tie(urgency, *peer) > std::tie(other.urgency, *other.peer); }
  };

  template <class HasRoom>
  void take_turn(const Peer& peer, std::vector<Waiting>& frames, HasRoom& has_room) {
    if (frames.empty() || !has_room(peer)) return;
    const auto& [has_payload, unit, begin, arrival] = frames.front().key;
    turns_.push_back({{has_payload, unit, arrival}, &peer, &frames});
    std::push_heap(turns_.begin(), turns_.end(), std::greater<>());
  }

  std::uint64_t arrivals_ = 0;
  std::size_t count_ = 0;
  std::map<Peer, std::vector<Waiting>> waiting_;  ///< each a heap, the first frame in front; empty ones stay
  std::vector<Turn> turns_;                       ///< a heap; of the present call, which `send` may end by an exception
};

}  // namespace psring::net
