#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/device/mapping.h>

namespace psring {

/// Memory of a fixed capacity, mapped once, from which buffers are cut. Freed pages are kept and reused. A shared arena
/// lies in a memory file that other processes of the host map. The mapping is sparse: unused capacity costs only
/// addresses. Safe for use from several threads. REQUIRES: the arena outlives its spans.
class Arena {
 public:
  enum class Kind : std::uint8_t { local, shared };
  static constexpr std::size_t kAlignment = 64;

  explicit Arena(std::size_t capacity, Kind kind = Kind::shared);

  /// Returns a zeroed span of `bytes` bytes, aligned to kAlignment, at the lowest free address. Throws usage if no gap
  /// is large enough.
  std::span<std::byte> allocate(std::size_t bytes);
  /// Returns a span to the arena. `span` must be exactly as `allocate` returned it.
  void free(std::span<std::byte> span) noexcept;

  const Fd& file() const { return file_; }  ///< no file for a local arena
  int fd() const { return file_.get(); }
  std::byte* base() const { return mapping_.data(); }
  std::size_t capacity() const { return capacity_; }
  bool contains(const void* at) const {
    return !std::less<>{}(at, static_cast<const void*>(base())) &&
           std::less<>{}(at, static_cast<const void*>(base() + capacity_));
  }
  /// Returns the value of FrameHeader::dest for an address: 1 + its offset, or 0 if the address lies outside of the
  /// arena.
  std::uint64_t mark(const void* at) const {
    return contains(at) ? 1 + static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - base()) : 0;
  }

 private:
  // Constant after construction.
  std::size_t capacity_;
  Fd file_;
  Mapping mapping_;

  Mutex mutex_;
  /// Offset and size; no two gaps are adjacent.
  std::map<std::size_t, std::size_t> gaps_ PSRING_GUARDED_BY(mutex_);
  /// Pages from this offset on were never handed out, and are zero.
  std::size_t touched_ PSRING_GUARDED_BY(mutex_) = 0;
};

}  // namespace psring
