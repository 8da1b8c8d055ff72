#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace psring::ring {

/// Divides the slices of one operation among the ranks that run: each slice is done by the rank that claims it. One
/// word in shared memory serves all operations, one after another. A rank that comes late finds no slice left.
class ShmShares {
 public:
  static constexpr std::uint64_t kMost = 0x7ff;

  // Memory order: every change of the word reads and writes it at once, so that all changes of an operation are one
  // release sequence: a rank that acquires the last one sees the slices of all ranks.

  /// A slice of operation `number` that no rank has claimed, or nothing. `slices`: of this operation.
  std::optional<std::uint64_t> claim(std::uint64_t number, std::uint64_t slices) {
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    for (;;) {
      const std::uint64_t now = seen >> kCountBits == tag_of(number) ? seen : tag_of(number) << kCountBits;
      if (behind(seen, number) || claimed(now) == slices) return std::nullopt;
      if (word_.compare_exchange_weak(seen, now + kClaimed, std::memory_order_acq_rel)) return claimed(now);
    }
  }
  /// A claimed slice is done. Returns true for the last slice of the operation.
  bool finish(std::uint64_t slices) { return ((word_.fetch_add(1, std::memory_order_acq_rel) + 1) & kMost) == slices; }
  /// Are all slices done?
  bool done(std::uint64_t number, std::uint64_t slices) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return behind(seen, number) || (seen >> kCountBits == tag_of(number) && (seen & kMost) == slices);
  }

 private:
  static constexpr std::uint64_t kClaimed = kMost + 1;
  static constexpr int kCountBits = 22;  ///< of both counts, below the operation's tag
  static_assert(kClaimed * kClaimed == std::uint64_t{1} << kCountBits);
  static std::uint64_t tag_of(std::uint64_t number) { return (number + 1) & (~std::uint64_t{0} >> kCountBits); }
  static std::uint64_t claimed(std::uint64_t word) { return word / kClaimed & kMost; }
  /// Does the word belong to a later operation? Operations that are not shared out leave gaps in the numbers. The order
  /// of two tags of 42 bits is lost after 2^41 operations: 25 days at a million operations per second.
  static bool behind(std::uint64_t word, std::uint64_t number) {
    return static_cast<std::int64_t>(((word >> kCountBits) - tag_of(number)) << kCountBits) > 0;
  }

  std::atomic<std::uint64_t> word_{0};  ///< the operation's tag, the claimed slices, the slices that are done
};

}  // namespace psring::ring
