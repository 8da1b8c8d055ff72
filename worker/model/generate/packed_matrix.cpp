#include <algorithm>
#include <cmath>

#include <psring/common/base/parallel.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/generate/packed_matrix.h>

namespace psring::worker {
namespace {

using Kind = WeightFormat::Kind;

constexpr std::size_t kHalf = kPanelColumns / 2;
constexpr float kMostInt8 = 127;
constexpr float kMostSymmetric = 7;
constexpr float kMostAffine = 15;
constexpr std::uint8_t kSymmetricZero = 8;

/// The scale and zero point of a group of weights.
struct GroupScale {
  float scale = 0;
  std::uint8_t zero = kSymmetricZero;

  /// Returns q from 0 to 15 with the least error.
  std::uint8_t round(float weight, float least) const {
    if (scale == 0) return zero;
    const float q = std::nearbyint(weight / scale) + static_cast<float>(zero);
    return static_cast<std::uint8_t>(std::clamp(q, least, kMostAffine));
  }
  float value(std::uint8_t q) const { return scale * (static_cast<float>(q) - static_cast<float>(zero)); }
};

double squared_error(std::span<const float> weights, const GroupScale& scale, float least) {
  double sum = 0;
  for (const float w : weights) {
    const double error = static_cast<double>(w) - static_cast<double>(scale.value(scale.round(w, least)));
    sum += error * error;
  }
  return sum;
}

/// Tries ranges from all of the weights' down to 0.7 of it, and returns the scale with the least squared error: with
/// 16 values, clipping a large weight often costs less than coarse steps for all others.
template <class Make>
GroupScale best_scale(std::span<const float> weights, float least, const Make& make) {
  GroupScale best = make(1.0F);
  double error = squared_error(weights, best, least);
  for (int i = 1; i <= 12; ++i) {
    const GroupScale other = make(1.0F - 0.025F * static_cast<float>(i));
    const double now = squared_error(weights, other, least);
    if (now < error) {
      best = other;
      error = now;
    }
  }
  return best;
}

GroupScale symmetric_scale(std::span<const float> weights) {
  float most = 0;
  for (const float w : weights) most = std::max(most, std::abs(w));
  return best_scale(weights, 1, [most](float share) { return GroupScale{.scale = share * most / kMostSymmetric}; });
}

GroupScale affine_scale(std::span<const float> weights) {
  float low = 0;  // zero is representable, so that a zero weight stays zero
  float high = 0;
  for (const float w : weights) {
    low = std::min(low, w);
    high = std::max(high, w);
  }
  return best_scale(weights, 0, [&](float share) {
    GroupScale made{.scale = share * (high - low) / kMostAffine};
    if (made.scale > 0)
      made.zero = static_cast<std::uint8_t>(std::clamp(std::nearbyint(-share * low / made.scale), 0.0F, kMostAffine));
    return made;
  });
}

}  // namespace

PackedMatrix::PackedMatrix(std::size_t inputs, std::size_t outputs, const WeightFormat& format, MemoryLedger& ledger)
    : inputs_(inputs), outputs_(outputs), format_(format) {
  const std::size_t columns = padded_outputs();
  const auto buffer = [&](std::size_t bytes) { return Buffer(bytes, Category::parameters, ledger); };
  switch (format.kind) {
    case Kind::f32:
      values_ = buffer(inputs * columns * sizeof(float));
      return;
    case Kind::int8:
      values_ = buffer(inputs * columns);
      break;
    case Kind::int4:
      values_ = buffer(inputs * columns / 2);
      if (format.affine) zeros_ = buffer(groups() * columns);
      break;
  }
  scales_ = buffer(groups() * columns * sizeof(float));
}

void PackedMatrix::set_column(std::size_t output, std::span<const float> weights) {
  check(weights.size() == inputs_ && output < outputs_, "column {} of {}: {} weights", output, outputs_,
        weights.size());
  switch (format_.kind) {
    case Kind::f32: {
      float* to =
          values_.as<float>().data() + output / kPanelColumns * inputs_ * kPanelColumns + output % kPanelColumns;
      for (std::size_t k = 0; k < inputs_; ++k) to[k * kPanelColumns] = weights[k];
      return;
    }
    case Kind::int8: {
      float most = 0;
      for (const float w : weights) most = std::max(most, std::abs(w));
      const float scale = most / kMostInt8;
      set_scale(0, output, scale);
      for (std::size_t k = 0; k < inputs_; ++k) {
        const float q = scale == 0 ? 0.0F : std::clamp(std::nearbyint(weights[k] / scale), -kMostInt8, kMostInt8);
        set_quantised(k, output, static_cast<std::uint8_t>(static_cast<std::int8_t>(q)));
      }
      return;
    }
    case Kind::int4:
      for (std::size_t g = 0; g < groups(); ++g) {
        const std::size_t begin = g * format_.group;
        const auto part = weights.subspan(begin, std::min(format_.group, inputs_ - begin));
        const GroupScale scale = format_.affine ? affine_scale(part) : symmetric_scale(part);
        set_scale(g, output, scale.scale);
        if (format_.affine) set_zero(g, output, scale.zero);
        for (std::size_t k = 0; k < part.size(); ++k)
          set_quantised(begin + k, output, scale.round(part[k], format_.affine ? 0 : 1));
      }
  }
}

void PackedMatrix::get_column(std::size_t output, std::span<float> weights) const {
  check(weights.size() == inputs_ && output < outputs_, "column {} of {}: {} weights", output, outputs_,
        weights.size());
  if (format_.kind == Kind::f32) {
    const float* from =
        values_.as<float>().data() + output / kPanelColumns * inputs_ * kPanelColumns + output % kPanelColumns;
    for (std::size_t k = 0; k < inputs_; ++k) weights[k] = from[k * kPanelColumns];
    return;
  }
  for (std::size_t k = 0; k < inputs_; ++k) {
    const std::uint8_t q = quantised(k, output);
    if (format_.kind == Kind::int8) {
      weights[k] = scale(0, output) * static_cast<float>(static_cast<std::int8_t>(q));
    } else {
      const std::size_t g = k / format_.group;
      weights[k] = GroupScale{.scale = scale(g, output), .zero = zero(g, output)}.value(q);
    }
  }
}

std::uint8_t PackedMatrix::quantised(std::size_t input, std::size_t output) const {
  const auto values = values_.as<std::uint8_t>();
  const std::size_t row = output / kPanelColumns * inputs_ + input;
  const std::size_t column = output % kPanelColumns;
  if (format_.kind == Kind::int8) return values[row * kPanelColumns + column];
  const std::uint8_t both = values[row * kHalf + column % kHalf];
  return column < kHalf ? both & 15 : both >> 4;
}

void PackedMatrix::set_quantised(std::size_t input, std::size_t output, std::uint8_t q) {
  const auto values = values_.as<std::uint8_t>();
  const std::size_t row = output / kPanelColumns * inputs_ + input;
  const std::size_t column = output % kPanelColumns;
  if (format_.kind == Kind::int8) {
    values[row * kPanelColumns + column] = q;
    return;
  }
  std::uint8_t& both = values[row * kHalf + column % kHalf];
  both = static_cast<std::uint8_t>(column < kHalf ? (both & 0xF0) | (q & 15) : (both & 0x0F) | (q << 4));
}

float PackedMatrix::scale(std::size_t group, std::size_t output) const {
  return scales_.as<float>()[scale_index(group, output)];
}
void PackedMatrix::set_scale(std::size_t group, std::size_t output, float scale) {
  scales_.as<float>()[scale_index(group, output)] = scale;
}
std::uint8_t PackedMatrix::zero(std::size_t group, std::size_t output) const {
  return format_.affine ? zeros_.as<std::uint8_t>()[scale_index(group, output)] : kSymmetricZero;
}
void PackedMatrix::set_zero(std::size_t group, std::size_t output, std::uint8_t zero) {
  zeros_.as<std::uint8_t>()[scale_index(group, output)] = zero;
}

void PackedMatrix::multiply_panel(std::size_t panel, PanelRows rows, std::span<const float> sums,
                                  const PanelKernels& kernels) const {
  rows.y += panel * kPanelColumns;
  const std::size_t first = panel * inputs_ * kPanelColumns;  // weight
  const std::size_t first_scale = panel * groups() * kPanelColumns;
  switch (format_.kind) {
    case Kind::f32:
      kernels.f32(rows, values_.as<float>().data() + first, kPanelColumns, kPanelColumns);
      return;
    case Kind::int8:
      kernels.int8(rows, values_.as<std::int8_t>().data() + first, scales_.as<float>().data() + first_scale);
      return;
    case Kind::int4:
      kernels.int4(rows, values_.as<std::uint8_t>().data() + first / 2,
                   {.group = format_.group,
                    .scales = scales_.as<float>().data() + first_scale,
                    .zeros = format_.affine ? zeros_.as<std::uint8_t>().data() + first_scale : nullptr,
                    .sums = sums.data(),
                    .sums_stride = groups()});
  }
}

void PackedMatrix::multiply(std::size_t rows, const float* x, std::size_t x_stride, float* y, std::span<float> sums,
                            const PanelKernels& kernels, Parallel& threads) const {
  check(sums.size() >= sums_floats(rows), "{} floats of scratch for the sums of {} rows", sums.size(), rows);
  if (format_.affine)
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t g = 0; g < groups(); ++g) {
        float sum = 0;
        for (std::size_t k = g * format_.group; k < std::min(inputs_, (g + 1) * format_.group); ++k)
          sum += x[r * x_stride + k];
        sums[r * groups() + g] = sum;
      }
  const PanelRows all{
      .rows = rows, .inputs = inputs_, .x = x, .x_stride = x_stride, .y = y, .y_stride = padded_outputs()};
  threads.for_slices(panels(), 1, [&](Range slice) {
    for (std::size_t panel = slice.begin; panel < slice.end; ++panel) multiply_panel(panel, all, sums, kernels);
  });
}

}  // namespace psring::worker
