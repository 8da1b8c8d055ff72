#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <set>
#include <utility>

#include <psring/common/net/sim/event_queue.h>
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

}  // namespace psring::net
