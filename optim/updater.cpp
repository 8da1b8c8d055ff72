#include <algorithm>
#include <cmath>

#include <psring/optim/updater.h>

namespace psring::optim {
namespace {

void check_sizes(Range range, std::size_t parameters, std::size_t direction) {
  check(range.begin % kCut == 0, "a range that starts at {}, not on a multiple of {}", range.begin, kCut);
  check(parameters == range.size() && direction == range.size(),
        "{} parameters and {} elements of direction for a range of {}", parameters, direction, range.size());
}

/// Rounds as Rule::sgd does, which devices apply here.
void scale(float step, Range part, const float* w, const float* r, float* out) {
#pragma GCC ivdep
  for (std::size_t i = part.begin; i < part.end; ++i) out[i] = std::fma(-step, r[i], w[i]);
}

}  // namespace

float clip_scale(const ExactSum& square_sum, double max_norm, float loss_scale) {
  if (!(max_norm > 0)) fail(ErrorKind::usage, "--clip-norm: expected a number > 0, got {}", max_norm);
  const double scale = max_norm / (std::sqrt(square_sum.value()) / loss_scale + 1e-6);
  return static_cast<float>((scale > 1 ? 1 : scale) / loss_scale);  // std::min would lose NaN
}

std::vector<TensorSums> layerwise_sums(std::span<const TensorLayout> tensors, Range range,
                                       std::span<const float> parameters, std::span<const float> direction) {
  check_sizes(range, parameters.size(), direction.size());
  std::vector<TensorSums> sums(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Range part = elements_of(tensors[i]).intersect(range);
    if (part.empty()) continue;
    add_square_sum(parameters.subspan(part.begin - range.begin, part.size()), sums[i].parameters);
    add_square_sum(direction.subspan(part.begin - range.begin, part.size()), sums[i].direction);
  }
  return sums;
}

void merge(std::vector<TensorSums>& into, std::span<const TensorSums> other) {
  check(into.size() == other.size(), "sums of {} tensors do not merge with sums of {}", into.size(), other.size());
  for (std::size_t i = 0; i < into.size(); ++i) into[i].merge(other[i]);
}

std::vector<float> trust_ratios(std::span<const TensorSums> sums) {
  std::vector<float> ratios;
  ratios.reserve(sums.size());
  for (const TensorSums& sum : sums) {
    const double w = std::sqrt(sum.parameters.value());
    const double r = std::sqrt(sum.direction.value());
    ratios.push_back(w == 0 || r == 0 ? 1.0F : static_cast<float>(w / r));
  }
  return ratios;
}

void scale_layerwise(float lr, std::span<const TensorLayout> tensors, Range range, std::span<const float> ratios,
                     std::span<const float> parameters, std::span<const float> direction, std::span<float> out) {
  check_sizes(range, parameters.size(), direction.size());
  check(out.size() == range.size(), "{} elements of output for a range of {}", out.size(), range.size());
  check(ratios.size() == tensors.size(), "{} ratios for {} tensors", ratios.size(), tensors.size());
  std::size_t done = 0;
  const auto copy_padding = [&](std::size_t until) {
    if (out.data() != parameters.data())
      std::copy(parameters.data() + done, parameters.data() + until, out.data() + done);
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Range part = elements_of(tensors[i]).intersect(range);
    if (part.empty()) continue;
    const Range local{part.begin - range.begin, part.end - range.begin};
    copy_padding(local.begin);
    scale(lr * ratios[i], local, parameters.data(), direction.data(), out.data());
    done = local.end;
  }
  copy_padding(range.size());
}

}  // namespace psring::optim
