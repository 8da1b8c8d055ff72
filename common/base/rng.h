#pragma once

#include <array>
#include <cstdint>

namespace psring {

/// The use of a random number. Different purposes have independent streams.
enum class Purpose : std::uint32_t {
  initialise = 1,
  shuffle = 2,
  dropout = 3,
  synthetic = 4,
  test = 5,
  network = 6,
  pace = 7,
  compress = 8,
  fault = 9,
  sample = 10,
  rows = 11
};

/// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC
/// 2011). A value depends only on the key and the index, so that any process can generate any range of a tensor, in any
/// order, with the same bits. GPU kernels call the constexpr functions, too.
class CounterRng {
 public:
  struct Key {
    std::uint64_t seed = 0;
    Purpose purpose = Purpose::test;
    std::uint32_t tensor = 0;
    std::uint32_t step = 0;   ///< step, epoch ...
    std::uint16_t micro = 0;  ///< micro-batch
    std::uint16_t rank = 0;
  };

  explicit constexpr CounterRng(const Key& key)
      : key_{static_cast<std::uint32_t>(key.seed),
             static_cast<std::uint32_t>(key.seed >> 32) ^ (static_cast<std::uint32_t>(key.purpose) << 24)},
        counter_{0, key.tensor, key.step, std::uint32_t{key.micro} << 16 | key.rank} {}

  /// Returns four independent, uniform 32-bit words.
  constexpr std::array<std::uint32_t, 4> block(std::uint32_t index) const {
    std::array<std::uint32_t, 4> c = counter_;
    c[0] = index;
    std::uint32_t k0 = key_[0];
    std::uint32_t k1 = key_[1];
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return c;
  }
  constexpr std::uint32_t bits(std::uint64_t index) const {
    return block(static_cast<std::uint32_t>(index / 4))[index % 4];
  }
  /// Returns a uniform number in [0, 1), a multiple of 2^-24.
  float uniform(std::uint64_t index) const;
  /// Returns a standard normal number (Box and Muller's method).
  float normal(std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;  ///< the index replaces the first word
};

}  // namespace psring
