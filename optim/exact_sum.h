#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace psring::optim {

/// A sum of doubles that is not rounded until it is read. The value does not depend on the order of the terms, nor on
/// merges. The sum is a fixed-point number in two's complement whose lowest bit is the smallest subnormal (Kulisch and
/// Miranker, "The arithmetic of the digital computer", SIAM Review 1986); 78 bits above the largest double leave room
/// for 2^77 terms.
/// A term that is not finite makes the sum NaN permanently. Equal sums are equal byte by byte.
class ExactSum {
 public:
  void add(double term);
  void merge(const ExactSum& other);

  /// Returns the sum, correctly rounded (to nearest, ties to even); infinite if it exceeds the largest double.
  double value() const;

  /// Writes the sum in its wire format: the words, lowest first, little-endian, then a last word that is 1 if the sum
  /// is NaN.
  static constexpr std::size_t kBytes = 280;
  void store(std::span<std::byte, kBytes> out) const;
  /// Reads a sum. Any bytes are valid: a last word other than 0 means NaN.
  static ExactSum load(std::span<const std::byte, kBytes> bytes);

  friend bool operator==(const ExactSum&, const ExactSum&) = default;

 private:
  static constexpr std::size_t kWords = 34;  // the range of a double (2098 bits), sign and carries

  std::array<std::uint64_t, kWords> words_{};
  std::uint64_t nan_ = 0;
};

static_assert(std::is_trivially_copyable_v<ExactSum> && sizeof(ExactSum) == ExactSum::kBytes);

}  // namespace psring::optim
