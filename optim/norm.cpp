#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <psring/common/base/range.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

constexpr std::size_t kLanes = 16;

double square(float value) { return double{value} * double{value}; }

double whole_block(const float* values) {
  double lane[kLanes];
  for (std::size_t j = 0; j < kLanes; ++j) lane[j] = square(values[j]);
  for (std::size_t i = kLanes; i < kCut; i += kLanes)
    for (std::size_t j = 0; j < kLanes; ++j) lane[j] += square(values[i + j]);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

}  // namespace

double block_square_sum(std::span<const float> values) {
  check(values.size() <= kCut, "block_square_sum: {} elements in a block of {}", values.size(), kCut);
  if (values.size() == kCut) return whole_block(values.data());
  float padded[kCut] = {};
  std::copy(values.begin(), values.end(), padded);
  return whole_block(padded);
}

void add_square_sum(std::span<const float> values, ExactSum& sum) {
  for (std::size_t begin = 0; begin < values.size(); begin += kCut)
    sum.add(block_square_sum(values.subspan(begin, std::min(kCut, values.size() - begin))));
}

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  constexpr std::size_t kBlock = 4096;  // the inner loop has no early exit, so that it is vectorised
  for (; !values.empty(); values = values.subspan(std::min(kBlock, values.size()))) {
    bool all = true;
    for (const float value : values.first(std::min(kBlock, values.size())))
      all &= (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
    if (!all) return false;
  }
  return true;
}

}  // namespace psring::optim
