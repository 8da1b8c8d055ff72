#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

// Loops with this attribute are compiled once per vector width; the widest that the processor supports is chosen when
// the program starts. They contain only elementwise arithmetic with explicit fused operations, so that all clones give
// the same bits. Programs that Clang 16 compiles with clones do not link.
#if defined(__x86_64__) && defined(__GNUC__) && (!defined(__clang__) || __clang_major__ > 16) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PSRING_WIDEST __attribute__((target_clones("avx512f", "default")))
#else
#define PSRING_WIDEST  // the resolvers of clones run before the sanitizers are initialised
#endif

/// Arithmetic over contiguous floats whose bits depend only on the values and the length, not on the processor or the
/// address. (Eigen's reductions and its exp process elements up to an aligned address separately, so that their bits
/// depend on the buffer's address.)
namespace psring::worker {

/// Returns e^z with a relative error below 1e-7 for z in [-87, 87]; other z are clamped to this range; NaN stays NaN.
inline float exponential(float z) {
  z = z > 87.0F ? 87.0F : z;
  z = z < -87.0F ? -87.0F : z;
  constexpr float kShift = 0x1.8p23F;  // adding it rounds to a whole number in the low bits
  const float shifted = std::fma(z, 1.44269504F, kShift);
  const float n = shifted - kShift;
  float r = std::fma(n, -0x1.62e4p-1F, z);  // ln 2 in two parts: the product of n and the first part is exact
  r = std::fma(n, -0x1.7f7d1cp-20F, r);
  float p = 0x1.6a2432p-10F;  // e^r within 4e-9 for |r| <= ln(2) / 2: a minimax fit of (e^r - 1 - r) / r^2
  p = std::fma(p, r, 0x1.1239e2p-7F);
  p = std::fma(p, r, 0x1.5558f2p-5F);
  p = std::fma(p, r, 0x1.555492p-3F);
  p = std::fma(p, r, 0x1.fffffcp-2F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

/// Sixteen accumulators: element i goes to accumulator i mod 16; a tree adds them at the end.
class Lanes {
 public:
  static constexpr std::size_t kWidth = 16;
  explicit Lanes(float start = 0) : low_(Eight{} + start), high_(Eight{} + start) {}

  /// For i in [0, n): lane(i) = combine(lane(i), i). `combine` is called with Eight for whole vectors and with float
  /// for the rest.
  template <class Combine>
  void run(std::size_t n, Combine combine) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      low_ = combine(low_, i);
      high_ = combine(high_, i + 8);
    }
    for (; i < n; ++i) {
      Eight& half = i % kWidth < 8 ? low_ : high_;
      half[i % 8] = combine(half[i % 8], i);
    }
  }
  template <class Combine>
  float fold(Combine combine) const {
    float value[8];
    for (std::size_t j = 0; j < 8; ++j) value[j] = combine(low_[j], high_[j]);
    for (std::size_t width = 4; width > 0; width /= 2)
      for (std::size_t j = 0; j < width; ++j) value[j] = combine(value[j], value[j + width]);
    return value[0];
  }

  using Eight = float __attribute__((vector_size(32)));
  /// Returns x[i ...] in the type of the third argument: eight values, or one.
  static Eight at(const float* x, std::size_t i, const Eight&) {
    Eight value;
    __builtin_memcpy(&value, x + i, sizeof value);
    return value;
  }
  static float at(const float* x, std::size_t i, const float&) { return x[i]; }

 private:
  Eight low_;
  Eight high_;
};

inline float sum(const float* x, std::size_t n) {
  Lanes lanes;
  lanes.run(n, [x](auto value, std::size_t i) { return value + Lanes::at(x, i, value); });
  return lanes.fold([](float a, float b) { return a + b; });
}

inline float dot(const float* x, const float* y, std::size_t n) {
  Lanes lanes;
  lanes.run(n, [x, y](auto value, std::size_t i) { return value + Lanes::at(x, i, value) * Lanes::at(y, i, value); });
  return lanes.fold([](float a, float b) { return a + b; });
}

/// Returns the maximum; the first element if all are NaN. REQUIRES: n > 0.
inline float largest(const float* x, std::size_t n) {
  Lanes lanes(x[0]);
  lanes.run(n, [x](auto value, std::size_t i) {
    const auto next = Lanes::at(x, i, value);
    return next > value ? next : value;
  });
  return lanes.fold([](float a, float b) { return b > a ? b : a; });
}

}  // namespace psring::worker
