#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>

namespace psring::net {

/// Counts the caller's memory that ZeroMQ's I/O thread has still to read, and rings when there is room again.
/// Shared by the channel and by every message on its way: those may outlive their link.
class ZmqOutbox {
 public:
  explicit ZmqOutbox(std::size_t low_water_bytes);

  /// Bytes on their way over one link.
  struct Lane {
    explicit Lane(std::shared_ptr<ZmqOutbox> owner) : outbox(std::move(owner)) {}

    std::shared_ptr<ZmqOutbox> outbox;
    std::atomic<std::size_t> bytes{0};
  };

  /// Sends a message's last part on the socket, without waiting and straight from `bytes`. Returns 0, or libzmq's
  /// errno.
  static int lend(void* socket, const std::shared_ptr<Lane>& lane, std::span<const std::byte> bytes);

  /// Readable (poll's POLLIN) once a lane fell to the low-water mark since the last `take_ring`.
  int fd() const { return ring_.get(); }
  bool take_ring();

  /// Waits until nothing is on its way any more; false where the deadline came first.
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
