#include <cmath>
#include <numbers>

#include <psring/common/base/rng.h>

namespace psring {
float CounterRng::uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24F; }

float CounterRng::normal(std::uint64_t index) const {
  const auto words = block(static_cast<std::uint32_t>(index / 2));
  const std::size_t pair = index % 2 * 2;
  const double u = (static_cast<double>(words[pair]) + 1.0) * 0x1p-32;  // in (0, 1], so that the logarithm is finite
  const double v = static_cast<double>(words[pair + 1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace psring
