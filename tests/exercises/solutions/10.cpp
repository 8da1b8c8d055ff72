// The range always contains 0, so that 0 has a code.
#include <algorithm>
#include <cmath>

#include <psring/cli/check/exercise.h>

using psring::exercise::Quantized;

void quantize(std::span<const float> values, Quantized& block) {
  float low = 0;
  float high = 0;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  block.scale = high > low ? (high - low) / 255 : 1.0F;
  block.zero_point = static_cast<std::uint8_t>(std::lround(-low / block.scale));
  for (const float value : values) {
    const long code = std::lround(value / block.scale) + block.zero_point;
    block.codes.push_back(static_cast<std::uint8_t>(std::clamp(code, 0L, 255L)));
  }
}

void dequantize(const Quantized& block, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = block.scale * static_cast<float>(block.codes[i] - block.zero_point);
}
