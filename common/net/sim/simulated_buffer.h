#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include <psring/common/net/sim/event_queue.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// The bounded buffer of one direction of a simulated link, and the frames that wait for room in it.
class SimulatedBuffer {
 public:
  /// Returns true if the frame fits now: a frame that is larger than the buffer fits if the buffer is empty.
  bool fits(std::size_t frame_bytes, std::size_t buffer_bytes) const {
    return *used_ == 0 || *used_ + frame_bytes <= buffer_bytes;
  }
  /// The message occupies the buffer until its holder, which becomes a lease, is dropped.
  void occupy(Message& message, std::size_t bytes) const {
    message.holder = std::make_shared<const Lease>(used_, bytes, std::move(message.holder));
  }
  /// Ends the lease of a message that a buffer holds; the message keeps its payload.
  static void release(Message& message) {
    message.holder = std::shared_ptr<const void>(std::static_pointer_cast<const Lease>(message.holder)->payload);
  }

  std::deque<SimulatedEvent> waiting;  ///< departures of frames without room, in order

 private:
  struct Lease {
    Lease(std::shared_ptr<std::size_t> buffer, std::size_t size, std::shared_ptr<const void> data)
        : used(std::move(buffer)), bytes(size), payload(std::move(data)) {
      *used += bytes;
    }
    ~Lease() { *used -= bytes; }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    const std::shared_ptr<std::size_t> used;
    const std::size_t bytes;
    const std::shared_ptr<const void> payload;
  };

  std::shared_ptr<std::size_t> used_ = std::make_shared<std::size_t>(0);  ///< bytes; shared with the leases
};

}  // namespace psring::net
