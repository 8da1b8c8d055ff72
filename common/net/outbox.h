#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <psring/common/net/held_frames.h>
#include <psring/common/net/transport.h>

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

  TurnQueue() = default;
  TurnQueue(TurnQueue&&) noexcept = default;  // a copy would list the queues of the original
  TurnQueue& operator=(TurnQueue&&) noexcept = default;

  void add(const Peer& to, const Place& place, Frame frame) {
    Entry& entry = *waiting_.try_emplace(to).first;
    auto& [frames, is_listed] = entry.second;
    if (!std::exchange(is_listed, true)) listed_.push_back(&entry);
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
    for (Entry* const entry : listed_) take_turn(*entry, has_room);
    while (!turns_.empty()) {
      std::pop_heap(turns_.begin(), turns_.end(), std::greater<>());
      const Turn turn = turns_.back();
      turns_.pop_back();
      std::vector<Waiting>& frames = turn.entry->second.frames;
      std::pop_heap(frames.begin(), frames.end(), std::greater<>());
      const Frame frame = std::move(frames.back().frame);
      frames.pop_back();
      --count_;
      send(turn.entry->first, frame);
      take_turn(*turn.entry, has_room);
    }
    std::erase_if(listed_, [](Entry* entry) {
      entry->second.is_listed = !entry->second.frames.empty();
      return !entry->second.is_listed;
    });
  }

 private:
  using Key = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint64_t>;  // has payload, unit, begin, arrival
  using Urgency = std::tuple<bool, std::uint32_t, std::uint64_t>;             // has payload, unit, arrival
  struct Waiting {
    Key key;
    Frame frame;
    bool operator>(const Waiting& other) const { return key > other.key; }
  };
  struct Queue {
    std::vector<Waiting> frames;  ///< a heap, the first frame in front
    bool is_listed = false;
  };
  using Entry = std::pair<const Peer, Queue>;
  struct Turn {
    Urgency urgency;
    Entry* entry;
    bool operator>(const Turn& other) const {
      return std::tie(urgency, entry->first) > std::tie(other.urgency, other.entry->first);
    }
  };

  template <class HasRoom>
  void take_turn(Entry& entry, HasRoom& has_room) {
    const std::vector<Waiting>& frames = entry.second.frames;
    if (frames.empty() || !has_room(entry.first)) return;
    const auto& [has_payload, unit, begin, arrival] = frames.front().key;
    turns_.push_back({{has_payload, unit, arrival}, &entry});
    std::push_heap(turns_.begin(), turns_.end(), std::greater<>());
  }

  std::uint64_t arrivals_ = 0;
  std::size_t count_ = 0;
  std::map<Peer, Queue> waiting_;  ///< empty queues stay
  std::vector<Entry*> listed_;     ///< queues that have frames, and those that an exception of `send` left empty
  std::vector<Turn> turns_;        ///< a heap; of the present call, which `send` may end by an exception
};

/// A frame to send. The payload must stay unchanged until the receiver has proven that it has the payload. A payload of
/// at most 4 KiB, which transports copy, may be kept alive by `holder` alone.
struct Outgoing {
  Peer to;
  FrameHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> holder = nullptr;  ///< shared with the queue that the frame waits in
};

/// A priority queue of frames: the data that the next forward pass needs first leaves first. The order is: frames
/// without payload, then units in forward order, then the order of arrival. At most `window_bytes` per peer, or the
/// transport's smaller window, are given to the transport at a time, so that an urgent frame waits only briefly. Frames
/// of one unit leave to all peers in turn, in the order of arrival. A peer's window bounds its part of a busy card: a
/// peer of weight 2 gets twice the bytes of a peer of weight 1. The frames to one peer can be exempt and keep their
/// order. Payloads for a peer in the same process take their turns as if that peer had a window, too, and are then held
/// until the bytes before them have left; frames behind them wait for room in that window.
class Outbox {
 public:
  explicit Outbox(std::size_t window_bytes = kWindowBytes, std::optional<Peer> in_order = {})
      : window_bytes_(window_bytes), in_order_(in_order) {}

  /// Multiplies the peer's window. REQUIRES: weight >= 1. Peers that are not named have weight 1.
  void set_weight(Peer peer, double weight) { weights_[peer] = weight; }
  /// Names the peer whose payloads are held: a worker's own server. Called before `add`.
  void hold(Peer peer) { own_ = peer; }
  void add(const Outgoing& frame);
  /// Gives frames to the transport while its windows have room.
  void flush(Transport& transport);
  bool empty() const { return waiting_.empty() && held_.empty(); }

 private:
  bool has_room(const Transport& transport, Peer peer) const;
  std::size_t own_window() const;
  bool release(Transport& transport);
  void give(Transport& transport, Peer peer, const Outgoing& frame);
  std::size_t window_of(const Transport& transport, Peer peer) const;

  std::size_t window_bytes_;
  std::optional<Peer> in_order_;  ///< peer whose frames keep their order
  std::map<Peer, double> weights_;
  TurnQueue<Peer, Outgoing> waiting_;
  std::optional<Peer> own_;  ///< peer whose payloads are held
  HeldFrames<Outgoing> held_;
  std::map<Peer, std::size_t> others_;  ///< the windows of peers that payloads were given to; filled if there is `own_`
};

}  // namespace psring::net
