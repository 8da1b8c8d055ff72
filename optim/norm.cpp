#include <algorithm>
#include <cstddef>

#include <psring/common/base/range.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

constexpr std::size_t kLanes = 16;

}  // namespace

double block_square_sum(std::span<const float> values) {
  check(values.size() <= kCut, "block_square_sum: {} elements in a block of {}", values.size(), kCut);
  double lane[kLanes] = {};
  const std::size_t whole = values.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const double value = values[i + j];
      lane[j] += value * value;
    }
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    const double value = values[i];
    lane[i - whole] += value * value;
  }
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

void add_square_sum(std::span<const float> values, ExactSum& sum) {
  for (std::size_t begin = 0; begin < values.size(); begin += kCut)
    sum.add(block_square_sum(values.subspan(begin, std::min(kCut, values.size() - begin))));
}

}  // namespace psring::optim
