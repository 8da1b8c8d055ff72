#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <psring/common/base/host_device.h>
#include <psring/common/base/rng.h>
#include <psring/optim/codec/compression.h>

namespace psring::optim {

// The arithmetic of the codecs of compression.h, shared by the host and by GPU kernels.

inline constexpr std::size_t kInt8Block = 256;
inline constexpr std::size_t kSignBlock = 1024;
inline constexpr std::size_t kSignLanes =
    16;  ///< partial sums of magnitudes, by place modulo this; they are added in order

constexpr std::size_t blocks_of(std::size_t elements, std::size_t block) { return (elements + block - 1) / block; }

/// The scale of an int8 block. A NaN or infinity makes the whole block NaN, so that the step is detected as non-finite.
/// Magnitudes that are too small for a scale become zero.
struct Int8Scale {
  float scale = 0;
  float factor = 0;
  bool finite = true;
};
/// `most`: the largest magnitude of the block; `finite`: all its values are finite.
PSRING_HOST_DEVICE inline Int8Scale int8_scale(float most, bool finite) {
  if (!finite) return {std::numeric_limits<float>::quiet_NaN(), 0, false};
  const float factor = 127 / most;
  return {most / 127, std::isfinite(factor) ? factor : 0, true};
}
PSRING_HOST_DEVICE inline std::int8_t int8_code(const Int8Scale& scale, float value) {
  return static_cast<std::int8_t>(scale.finite ? std::nearbyint(std::clamp(value * scale.factor, -127.0F, 127.0F)) : 1);
}

/// Returns the mean magnitude of a block. `sum`: the magnitudes' sum, which may overflow a float; the mean is then
/// computed in double.
PSRING_HOST_DEVICE inline float mean_magnitude(const float* values, std::size_t size, float sum) {
  const auto count = static_cast<float>(size);
  const float mean = sum / count;
  if (std::isfinite(mean)) return mean;
  double all = 0;
  for (std::size_t i = 0; i < size; ++i) all += std::abs(values[i]) / static_cast<double>(count);
  return static_cast<float>(all);
}

/// Returns the position of random-k's kept element i. The elements are cut into `kept` runs of nearly equal length, and
/// one element of each run is kept.
constexpr std::size_t random_place(const CounterRng& rng, std::size_t begin, std::size_t i, std::size_t elements,
                                   std::size_t kept) {
  const std::size_t first = i * elements / kept;
  const std::size_t run = (i + 1) * elements / kept - first;
  // Equals rng.bits(begin + i). A run-time index into the block would make a GPU keep the block in memory.
  const auto words = rng.block(static_cast<std::uint32_t>((begin + i) / 4));
  const std::size_t word = (begin + i) % 4;
  const std::uint32_t low = word == 0 ? words[0] : words[1];
  const std::uint32_t high = word == 2 ? words[2] : words[3];
  return first + (word < 2 ? low : high) % run;
}
/// The random numbers for random_place. Its `begin` is the begin of the range in its unit.
constexpr CounterRng random_places(const GradientId& id) {
  return CounterRng({.seed = id.seed,
                     .purpose = Purpose::compress,
                     .tensor = static_cast<std::uint32_t>(id.unit),
                     .step = static_cast<std::uint32_t>(id.step),
                     .micro = static_cast<std::uint16_t>(id.micro),
                     .rank = static_cast<std::uint16_t>(id.worker)});
}
/// Random-k's first value if an element of the range is NaN or infinite. The whole range is then decoded as NaN, so
/// that the step is detected as non-finite. Otherwise a non-finite element could be missed: it may not be drawn, and
/// all drawn elements may lie in padding.
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
PSRING_HOST_DEVICE inline bool is_finite(float value) { return value - value == 0; }
/// Returns the factor of kept values: elements / kept makes the estimate unbiased; 1 keeps the values unchanged.
constexpr float random_factor(std::size_t elements, std::size_t kept, bool unbiased) {
  return unbiased ? static_cast<float>(elements) / static_cast<float>(kept) : 1;
}

}  // namespace psring::optim
