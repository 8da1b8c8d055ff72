#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace psring::optim {

/// A sum of doubles without any rounding until it is read: the same value in whatever order, and through
/// whatever merges, the terms came. A fixed-point number in two's complement whose lowest bit is the
/// smallest subnormal (Kulisch and Miranker, "The arithmetic of the digital computer", SIAM Review 1986);
/// 78 bits above the largest double leave room for 2^77 terms.
/// A term that is not finite makes the sum NaN for good. Equal sums are equal byte for byte.
class ExactSum {
 public:
  void add(double term);
  void merge(const ExactSum& other);

  /// The sum, correctly rounded (to nearest, ties to even); infinite where it exceeds the largest double.
  double value() const;

  /// Its form on the wire: the words from the lowest, little endian, then 1 where the sum is NaN.
  static constexpr std::size_t kBytes = 280;
  void store(std::span<std::byte, kBytes> out) const;
  /// Any bytes are a sum: a last word other than 0 is NaN.
  static ExactSum load(std::span<const std::byte, kBytes> bytes);

  friend bool operator==(const ExactSum&, const ExactSum&) = default;

 private:
  static constexpr std::size_t kWords = 34;  // 2098 bits of a double's range, sign, carries

  std::array<std::uint64_t, kWords> words_{};
  std::uint64_t nan_ = 0;
};

static_assert(std::is_trivially_copyable_v<ExactSum> && sizeof(ExactSum) == ExactSum::kBytes);

}  // namespace psring::optim
