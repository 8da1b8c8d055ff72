#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace psring {

/// IEEE 754 binary16, for storage only: arithmetic is done in f32.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
};

/// bfloat16, the upper half of an f32, for storage only. Rounds to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>((nan ? word | 0x00400000U : word + 0x7fffU + ((word >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// Convert `count` values to f32 and back, vectorised.
void widen(const Half* from, float* to, std::size_t count);
void widen(const BFloat16* from, float* to, std::size_t count);
void narrow(const float* from, Half* to, std::size_t count);
void narrow(const float* from, BFloat16* to, std::size_t count);

}  // namespace psring
