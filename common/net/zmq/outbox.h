#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>

namespace psring::net {

/// Counts the bytes of the caller's memory that ZeroMQ's I/O thread has not read yet, and signals when there is room
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

  /// Sends the last part of a message directly from `bytes`, without waiting. Returns 0, or libzmq's errno.
  static int lend(void* socket, const std::shared_ptr<Lane>& lane, std::span<const std::byte> bytes);

  /// Readable (poll's POLLIN) once a lane has fallen to the low-water mark since the last `take_ring`.
  int fd() const { return ring_.get(); }
  bool take_ring();

  /// Waits until no bytes are in flight. Returns false if the deadline passed first.
  bool drain(Moment deadline);

 private:
  struct Parcel;
  static void delivered(void* data, void* hint);
  void ring();

  const std::size_t low_water_bytes_;
  const Fd ring_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> draining_{false};
};

}  // namespace psring::net
