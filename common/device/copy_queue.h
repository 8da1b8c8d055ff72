#pragma once

#include <cstddef>
#include <cstdint>

namespace psring {

/// A queue of copies between a device's memory and pinned memory of the host, beside the device's own queue: copies go
/// on while the device computes. Belongs to one thread. REQUIRES: its device outlives it.
class CopyQueue {
 public:
  /// A place in the queue.
  using Mark = std::uint64_t;

  virtual ~CopyQueue() = default;
  /// Copies from now on begin after all that the device's queue has now.
  virtual void begin_after_device() = 0;
  /// What the device's queue gets from now on begins after the mark.
  virtual void hold_device(Mark mark) = 0;
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  virtual Mark mark() = 0;
  virtual bool reached(Mark mark) = 0;
};

}  // namespace psring
