#pragma once

#include <array>
#include <cstdint>

namespace psring {

/// What a random number is for: streams of different purposes never meet.
enum class Purpose : std::uint32_t {
  initialise = 1,
  shuffle = 2,
  dropout = 3,
  synthetic = 4,
  test = 5,
  network = 6,
  pace = 7,
  compress = 8,
  fault = 9
};

/// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as
/// 1, 2, 3", SC 2011): the value depends on nothing but the key and the index, so any range of a
/// tensor can be generated anywhere, in any order, with the same bits.
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

  explicit CounterRng(const Key& key);

  /// Four independent uniform 32-bit words.
  std::array<std::uint32_t, 4> block(std::uint32_t index) const;
  std::uint32_t bits(std::uint64_t index) const;
  /// Uniform in [0, 1), a multiple of 2^-24.
  float uniform(std::uint64_t index) const;
  /// Standard normal, by Box and Muller.
  float normal(std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;  ///< the first word takes the index
};

}  // namespace psring
