#include <algorithm>
#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/vector_math.h>

namespace psring::worker {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr std::size_t kRowsOfASum = 64;  // partial sums of this many rows keep more digits

struct RowStatistics {
  float mean;
  float scale;  ///< 1 / sqrt(variance + eps)
};

RowStatistics statistics(const float* x, std::size_t n) {
  const auto count = static_cast<float>(n);
  const float mean = sum(x, n) / count;
  Lanes lanes;
  lanes.run(n, [x, mean](auto value, std::size_t i) {
    const auto centred = Lanes::at(x, i, value) - mean;
    return value + centred * centred;
  });
  const float variance = lanes.fold([](float a, float b) { return a + b; }) / count;
  return {mean, 1.0F / std::sqrt(variance + kEpsilon)};
}

void normalise(const float* x, RowStatistics row, const float* weight, const float* bias, float* y, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t j = 0; j < n; ++j) y[j] = (x[j] - row.mean) * row.scale * weight[j] + bias[j];
}

/// weight_sum += dy * normalised x, bias_sum += dy.
void add_parameters(const float* x, const float* dy, RowStatistics row, float* __restrict weight_sum,
                    float* __restrict bias_sum, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) {
    weight_sum[j] += dy[j] * ((x[j] - row.mean) * row.scale);
    bias_sum[j] += dy[j];
  }
}

/// With g = dy * weight and z the normalised x: dx = scale * (g - mean(g) - z * mean(g z)) (+ residual).
void input_gradient(const float* x, const float* dy, RowStatistics row, const float* weight, const float* residual,
                    float* dx, std::size_t n) {
  const auto count = static_cast<float>(n);
  const auto add = [](float a, float b) { return a + b; };
  const float mean_g = dot(dy, weight, n) / count;
  Lanes lanes;
  lanes.run(n, [&](auto value, std::size_t i) {
    const auto z = (Lanes::at(x, i, value) - row.mean) * row.scale;
    return value + Lanes::at(dy, i, value) * Lanes::at(weight, i, value) * z;
  });
  const float mean_gz = lanes.fold(add) / count;
#pragma GCC ivdep
  for (std::size_t j = 0; j < n; ++j) {
    const float z = (x[j] - row.mean) * row.scale;
    const float gradient = row.scale * (dy[j] * weight[j] - mean_g - z * mean_gz);
    dx[j] = residual == nullptr ? gradient : residual[j] + gradient;
  }
}

void add_to(const Gradient& gradient, float beta, const float* partial) {
  float* total = gradient.data();
  for (std::size_t j = 0; j < gradient.size(); ++j) total[j] = beta == 0 ? partial[j] : total[j] + partial[j];
}

}  // namespace

void layer_norm(ConstMatrix x, std::span<const float> weight, std::span<const float> bias, std::span<float> saved,
                Matrix y) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const RowStatistics row = statistics(x.row(r), x.cols);
    saved[2 * r] = row.mean;
    saved[2 * r + 1] = row.scale;
    normalise(x.row(r), row, weight.data(), bias.data(), y.row(r), x.cols);
  }
}

void layer_norm_again(ConstMatrix x, std::span<const float> weight, std::span<const float> bias,
                      std::span<const float> saved, Matrix y) {
  for (std::size_t r = 0; r < x.rows; ++r)
    normalise(x.row(r), {saved[2 * r], saved[2 * r + 1]}, weight.data(), bias.data(), y.row(r), x.cols);
}

void layer_norm_backward(ConstMatrix x, std::span<const float> weight, std::span<const float> saved, ConstMatrix dy,
                         ConstMatrix residual, Matrix dx, const Gradient& weight_gradient,
                         const Gradient& bias_gradient, std::span<float> scratch) {
  const auto by_input = [&](std::size_t r) {
    const float* kept = residual.data == nullptr ? nullptr : residual.row(r);
    input_gradient(x.row(r), dy.row(r), {saved[2 * r], saved[2 * r + 1]}, weight.data(), kept, dx.row(r), x.cols);
  };
  if (!weight_gradient.wanted()) {
    for (std::size_t r = 0; dx.data != nullptr && r < x.rows; ++r) by_input(r);
    return;
  }
  check(weight_gradient.size() == x.cols && bias_gradient.size() == x.cols && scratch.size() >= 2 * x.cols,
        "layer norm backward: {} columns, {} gradients", x.cols, weight_gradient.size());
  float weight_beta = weight_gradient.beta();
  float bias_beta = bias_gradient.beta();
  float* weight_sum = scratch.data();
  float* bias_sum = weight_sum + x.cols;
  for (std::size_t begin = 0; begin < x.rows; begin += kRowsOfASum) {
    std::fill_n(scratch.data(), 2 * x.cols, 0.0F);
    for (std::size_t r = begin; r < std::min(begin + kRowsOfASum, x.rows); ++r) {
      add_parameters(x.row(r), dy.row(r), {saved[2 * r], saved[2 * r + 1]}, weight_sum, bias_sum, x.cols);
      if (dx.data != nullptr) by_input(r);
    }
    add_to(weight_gradient, weight_beta, weight_sum);
    add_to(bias_gradient, bias_beta, bias_sum);
    weight_beta = bias_beta = 1;
  }
}

}  // namespace psring::worker
