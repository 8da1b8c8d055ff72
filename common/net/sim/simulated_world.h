#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/clock.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/sim/event_queue.h>
#include <psring/common/net/sim/lossy_wire.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// A direction of a link: the places of the sender and the receiver.
using SimulatedLink = std::pair<std::size_t, std::size_t>;

/// The bounded buffer of one direction of a simulated link, and the frames that wait for room in it.
class SimulatedBuffer {
 public:
  /// `freed` gets the link whenever a message leaves its buffer.
  SimulatedBuffer(SimulatedLink link, std::shared_ptr<std::set<SimulatedLink>> freed)
      : room_(std::make_shared<Room>(link, std::move(freed))) {}

  /// Returns true if the frame fits now: a frame that is larger than the buffer fits if the buffer is empty.
  bool fits(std::size_t frame_bytes, std::size_t buffer_bytes) const {
    return room_->used == 0 || room_->used + frame_bytes <= buffer_bytes;
  }
  /// The message occupies the buffer until its holder, which becomes a lease, is dropped.
  void occupy(Message& message, std::size_t bytes) const {
    message.holder = std::make_shared<const Lease>(room_, bytes, std::move(message.holder));
  }
  /// Ends the lease of a message that a buffer holds; the message keeps its payload.
  static void release(Message& message) {
    message.holder = std::shared_ptr<const void>(std::static_pointer_cast<const Lease>(message.holder)->payload);
  }

  std::deque<SimulatedEvent> waiting;  ///< departures of frames without room, in order

 private:
  struct Room {
    Room(SimulatedLink of, std::shared_ptr<std::set<SimulatedLink>> notes) : link(of), freed(std::move(notes)) {}

    const SimulatedLink link;
    const std::shared_ptr<std::set<SimulatedLink>> freed;  ///< shared with all buffers of the network
    std::size_t used = 0;                                  ///< bytes
  };
  struct Lease {
    Lease(std::shared_ptr<Room> buffer, std::size_t size, std::shared_ptr<const void> data)
        : room(std::move(buffer)), bytes(size), payload(std::move(data)) {
      room->used += bytes;
    }
    ~Lease() {
      room->used -= bytes;
      room->freed->insert(room->link);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    const std::shared_ptr<Room> room;
    const std::size_t bytes;
    const std::shared_ptr<const void> payload;
  };

  std::shared_ptr<Room> room_;  ///< shared with the leases
};

/// One peer of a simulated network: its network card, the messages and losses that wait to be received, and its state.
struct SimulatedPeer {
  SimulatedPeer(Peer who, const LinkSpec& link, const LinkSpec& within) : peer(who), card(link), inner(within) {}

  /// Returns true if a receive of the peer ends now.
  bool has_news() const { return !inbox.empty() || !lost.empty() || woken || dead || stuck; }
  /// Returns true if the peer's thread can run.
  bool can_run() const {
    return !ended && (!away || stuck) && (!waits || expired || (sleeps ? dead || stuck : has_news()));
  }
  void begin_wait(Moment until) {
    deadline = until;
    waits = true;
  }
  void begin_sleep(Moment until) {
    begin_wait(until);
    sleeps = true;
  }
  void end_wait() { waits = sleeps = expired = false; }
  void expire(Moment time) { expired = expired || (waits && deadline <= time); }
  /// Starts the peer's next incarnation. Messages and losses that wait for the previous incarnation are dropped.
  void come_back() {
    inbox.clear();
    lost.clear();
    waiting_bytes.clear();
    woken = dead = away = false;
    ++incarnation;
  }

  const Peer peer;
  LinkShaper card;
  LinkShaper inner;  ///< the link of the peer's process to others of its host
  ByteLedger ledger;
  std::deque<Message> inbox;
  std::deque<std::size_t> lost;  ///< places of lost peers whose loss was not reported to this peer yet
  std::map<std::size_t, std::size_t> waiting_bytes;  ///< by receiver: payload that waits for the card
  bool wants_room = false;                           ///< has seen bytes in flight: `receive` ends when some have left
  Moment deadline = kNever;                          ///< the end of the wait
  bool waits = false;
  bool sleeps = false;  ///< the wait is a sleep, which no message ends
  bool expired = false;
  bool woken = false;
  bool dead = false;
  std::optional<Moment> returns;  ///< when a dead peer comes back; none: it does not
  bool away = false;              ///< the dead peer's thread has ended its work and waits for the return
  bool ended = false;             ///< the peer's thread has ended for good
  bool stuck = false;             ///< the network has found a deadlock
  std::uint32_t incarnation = 0;
};

/// The state of a simulated network: its peers, the frames in flight, and the virtual time. A pure state machine
/// without threads and locks. SimulatedNetwork runs one thread for each peer over it, one thread at a time: a thread
/// that waits calls `begin_wait`, and `next_to_run` says which thread runs next.
class SimulatedWorld {
 public:
  explicit SimulatedWorld(const SimulatedNetwork::Options& options);

  const SimulatedNetwork::Options& options() const { return options_; }
  Moment now() const { return now_; }
  std::uint32_t incarnation(std::size_t place) const { return peers_[place].incarnation; }
  bool dead(std::size_t place) const { return peers_[place].dead; }
  ByteLedger& ledger(std::size_t place) { return peers_[place].ledger; }

  /// Copies the payload. Returns false, and sends nothing, if the sender is dead.
  bool send(std::size_t from, std::size_t to, const FrameHeader& header, std::span<const std::byte> payload);
  /// Payload to the peer that waits for the card. If there is some, a wait of `from` ends when a frame has left.
  std::size_t waiting_bytes(std::size_t from, std::size_t to);
  /// The window of the link between two peers.
  std::size_t window_bytes(std::size_t from, std::size_t to) { return net::window_bytes(link(from, to).link()); }
  bool has_news(std::size_t place) const { return peers_[place].has_news(); }
  /// The peer waits for news until `deadline`, and for at least 1 us.
  void begin_wait(std::size_t place, Moment deadline);
  /// The peer sleeps: no message ends its wait. Returns false, and does nothing, if the moment has passed.
  bool begin_sleep(std::size_t place, Moment moment);
  void end_wait(std::size_t place) { peers_[place].end_wait(); }
  /// The next message of the peer's inbox; nothing if there is none. Throws peer_lost if the peer itself is dead, and
  /// once for each peer that was lost; throws timeout if the network has found a deadlock.
  std::optional<Message> take(std::size_t place);
  void wake(std::size_t place) { peers_[place].woken = true; }
  /// The peer dies now, unless it is dead or has ended.
  void kill(std::size_t place, std::optional<Nanoseconds> returns_after = {});

  enum class End : std::uint8_t { done, died, again };
  /// The work of the peer's thread has ended. `again`: the peer is dead, and comes back when `next_to_run` names it.
  End end(std::size_t place);

  /// Returns the peer whose thread runs next. If all peers wait, moves the time to the next event or deadline until one
  /// of them can run. If none ever can, that is a deadlock: all of them run, and `take` throws. Returns nothing if all
  /// peers have ended.
  std::optional<std::size_t> next_to_run();

 private:
  /// The link of a peer's process to another peer, which is in another process: its host's card, or a link within the
  /// host.
  LinkShaper& link(std::size_t place, std::size_t other);
  std::optional<std::size_t> choose();
  bool advance();
  void happen(const SimulatedEvent& event);
  void leave(const SimulatedEvent& departure);
  void leave_blocked();
  SimulatedBuffer& buffer(SimulatedLink link) { return buffers_.try_emplace(link, link, freed_).first->second; }
  void free_links_of(std::size_t place);
  void depart(const SimulatedEvent& departure);
  void begin_travel(const SimulatedEvent& departure);
  void find_deadlock();

  // Constant after construction.
  const SimulatedNetwork::Options options_;
  const std::vector<std::size_t> inner_of_;  ///< by place: the first place of its process, whose link they share
  const std::vector<std::size_t> card_of_;   ///< by place: the first place of its host
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();  ///< shared with the blocks of messages

  SeededDraws draws_;
  EventQueue events_{draws_};
  LossyWire wire_;
  std::deque<SimulatedPeer> peers_;                   ///< by place
  std::map<SimulatedLink, SimulatedBuffer> buffers_;  ///< of bounded links
  /// Links whose buffers frames have left, or whose sender or receiver is gone, since `leave_blocked` looked at them.
  const std::shared_ptr<std::set<SimulatedLink>> freed_ = std::make_shared<std::set<SimulatedLink>>();
  Moment now_{};
  Moment last_progress_{};  ///< the time of the last event that is neither a deadline nor a probe
  std::string deadlock_;    ///< the error line of a deadlock
};

}  // namespace psring::net
