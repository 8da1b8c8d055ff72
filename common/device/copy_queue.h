#pragma once

#include <cstddef>
#include <cstdint>

namespace psring {

/// A queue of copies between a device's memory and the host's pinned memory, separate from the device's own queue:
/// copies overlap with computation. Belongs to one thread. REQUIRES: the device outlives the queue.
class CopyQueue {
 public:
  /// A position in the queue.
  using Mark = std::uint64_t;

  virtual ~CopyQueue() = default;
  /// Makes later copies wait for everything that is in the device's queue now.
  virtual void begin_after_device() = 0;
  /// Makes later work in the device's queue wait for the mark.
  virtual void hold_device(Mark mark) = 0;
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  virtual Mark mark() = 0;
  virtual bool reached(Mark mark) = 0;
};

}  // namespace psring
