#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/net/frame.h>

namespace psring::net {

/// Counts the payload bytes that ZeroMQ's I/O thread has not given to the kernel yet, and signals when there is room
/// again. The channel and all messages in flight share it, because messages may outlive their link.
class ZmqOutbox {
 public:
  explicit ZmqOutbox(std::size_t low_water_bytes);

  /// Bytes in flight on one link.
  struct Lane {
    explicit Lane(std::shared_ptr<ZmqOutbox> owner) : outbox(std::move(owner)) {}

    std::shared_ptr<ZmqOutbox> outbox;
    std::atomic<std::size_t> bytes{0};
  };

  /// Sends the last two parts of a message, without waiting: the payload directly from the caller's memory, then the
  /// header. ZeroMQ encrypts a part as a whole, and frees it before its bytes leave; but it takes no part before the
  /// bytes of the previous part have left. So when the header is freed, the payload has left. Returns 0, or libzmq's
  /// errno.
  static int lend(void* socket, const std::shared_ptr<Lane>& lane, const FrameHeader& header,
                  std::span<const std::byte> payload);

  /// From now on every payload that has left rings the bell, not only a payload that brings its lane to the low-water
  /// mark.
  void ring_always() { rings_always_.store(true); }
  /// Readable (poll's POLLIN) once the outbox has rung since the last `take_ring`.
  int fd() const { return ring_.get(); }
  bool take_ring();

  /// Waits until no bytes are in flight. Returns false if the deadline passed first.
  bool drain(Moment deadline);

 private:
  struct Parcel;
  static int lend_part(void* socket, std::span<const std::byte> bytes, Parcel& parcel, int flags);
  static void delivered(void* data, void* hint);
  void ring();

  const std::size_t low_water_bytes_;
  const Fd ring_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> rings_always_{false};
};

}  // namespace psring::net
