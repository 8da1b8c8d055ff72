#include <algorithm>
#include <cmath>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/layers/batch_norm.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

constexpr float kEpsilon = 1e-5F;
constexpr float kMomentum = 0.1F;
constexpr std::size_t kRowsOfASum = 64;  // partial sums of this many rows keep more digits

/// into = the sum of add(row, partial) over all rows; `partial` is as long as `into`.
template <class Add>
void sum_over_rows(std::size_t rows, std::span<float> into, std::span<float> partial, Add&& add) {
  std::fill(into.begin(), into.end(), 0.0F);
  for (std::size_t begin = 0; begin < rows; begin += kRowsOfASum) {
    std::fill(partial.begin(), partial.end(), 0.0F);
    for (std::size_t r = begin; r < std::min(begin + kRowsOfASum, rows); ++r) add(r, partial.data());
    for (std::size_t j = 0; j < into.size(); ++j) into[j] += partial[j];
  }
}

void divide(std::span<float> values, std::size_t by) {
  for (float& value : values) value /= static_cast<float>(by);
}

/// Computes the mean of x's columns, and the mean square of x - mean.
void statistics(ConstMatrix x, std::span<float> mean, std::span<float> variance, std::span<float> partial) {
  add_column_sums(x, 0, mean, partial);
  divide(mean, x.rows);
  sum_over_rows(x.rows, variance, partial, [&](std::size_t r, float* sum) {
    const float* row = x.row(r);
    for (std::size_t j = 0; j < x.cols; ++j) sum[j] += (row[j] - mean[j]) * (row[j] - mean[j]);
  });
  divide(variance, x.rows);
}

void move_towards(std::span<const float> value, float factor, std::span<float> running) {
  for (std::size_t j = 0; j < running.size(); ++j)
    running[j] = (1 - kMomentum) * running[j] + kMomentum * (value[j] * factor);
}

void invert_root(std::span<const float> variance, std::span<float> scale) {
  for (std::size_t j = 0; j < scale.size(); ++j) scale[j] = 1.0F / std::sqrt(variance[j] + kEpsilon);
}

/// ReLU that keeps NaN.
float relu(float value) { return value <= 0 ? 0.0F : value; }

void add_to(const Gradient& gradient, std::span<const float> sum) {
  const float beta = gradient.beta();
  float* total = gradient.data();
  for (std::size_t j = 0; j < sum.size(); ++j) total[j] = beta == 0 ? sum[j] : total[j] + sum[j];
}

}  // namespace

BatchNorm::BatchNorm(std::string name, std::size_t cols, Activation activation)
    : name_(std::move(name)), cols_(cols), activation_(activation) {
  check(cols > 0, "batch norm {} of no columns", name_);
}

std::vector<TensorSpec> BatchNorm::tensors() const {
  return {{name_ + ".weight", {cols_}, {Init::Kind::constant, 1}}, {name_ + ".bias", {cols_}, {}}};
}

std::vector<TensorSpec> BatchNorm::buffers() const {
  return {{name_ + ".running_mean", {cols_}, {}},
          {name_ + ".running_var", {cols_}, {Init::Kind::constant, 1}},
          {name_ + ".num_batches_tracked", {}, {}}};
}

Shape BatchNorm::output(Shape in) const {
  if (in.cols != cols_) fail(ErrorKind::usage, "layer {} takes {} columns, and is given {}", name_, cols_, in.cols);
  return in;
}

/// Saves the mean and 1 / sqrt(variance + eps) of each column.
std::size_t BatchNorm::saved_floats(Shape /*in*/) const { return 2 * piece(cols_); }

/// Backward's buffers: two sums per column, and their partial sums.
std::size_t BatchNorm::scratch_floats(Shape /*in*/) const { return 2 * piece(2 * cols_); }

void BatchNorm::forward(const Forward& pass) const {
  const ConstMatrix x = pass.x;
  Pieces kept(pass.saved);
  const auto mean = kept.take(cols_);
  const auto scale = kept.take(cols_);
  if (pass.training) {
    statistics(x, mean, scale, pass.scratch.first(cols_));
    if (!pass.buffers.empty()) {
      move_towards(mean, 1, pass.buffers[kRunningMean]);
      const auto n = static_cast<float>(x.rows);
      if (x.rows > 1) move_towards(scale, n / (n - 1), pass.buffers[kRunningVar]);
      pass.buffers[kBatches][0] += 1;
    }
    invert_root(scale, scale);
  } else {
    check(!pass.buffers.empty(), "{}: evaluation without its buffers", name_);
    std::copy_n(pass.buffers[kRunningMean].begin(), cols_, mean.begin());
    invert_root(pass.buffers[kRunningVar], scale);
  }
  const float* weight = pass.parameters[kWeight].data();
  const float* bias = pass.parameters[kBias].data();
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* from = x.row(r);
    float* to = pass.y.row(r);
#pragma GCC ivdep
    for (std::size_t j = 0; j < cols_; ++j) to[j] = (from[j] - mean[j]) * scale[j] * weight[j] + bias[j];
    if (activation_ == Activation::relu) std::transform(to, to + cols_, to, relu);
  }
}

/// With z = (x - mean) * scale and d = the gradient with respect to z * weight + bias:
/// dx = weight * scale * (d - mean(d) - z * mean(d z)).
void BatchNorm::backward(const Backward& pass) const {
  const ConstMatrix x = pass.x;
  Pieces kept(pass.saved);
  const float* mean = kept.take(cols_).data();
  const float* scale = kept.take(cols_).data();
  Pieces scratch(pass.scratch);
  const std::span<float> partial = scratch.take(2 * cols_);
  const std::span<float> sums = scratch.take(2 * cols_);  // sums of d, and of d z
  const bool masked = activation_ == Activation::relu;
  const auto by_output = [&](std::size_t r, std::size_t j) {
    return masked && pass.y.row(r)[j] <= 0 ? 0.0F : pass.dy.row(r)[j];
  };
  sum_over_rows(x.rows, sums, partial, [&](std::size_t r, float* sum) {
    for (std::size_t j = 0; j < cols_; ++j) {
      const float d = by_output(r, j);
      sum[j] += d;
      sum[cols_ + j] += d * ((x.row(r)[j] - mean[j]) * scale[j]);
    }
  });
  if (pass.wants_gradients()) {
    add_to(pass.gradients[kBias], sums.first(cols_));
    add_to(pass.gradients[kWeight], sums.last(cols_));
  }
  if (pass.dx.data == nullptr) return;
  divide(sums, x.rows);
  const float* weight = pass.parameters[kWeight].data();
  for (std::size_t r = 0; r < x.rows; ++r) {
    float* dx = pass.dx.row(r);
#pragma GCC ivdep
    for (std::size_t j = 0; j < cols_; ++j) {
      const float z = (x.row(r)[j] - mean[j]) * scale[j];
      dx[j] = weight[j] * scale[j] * (by_output(r, j) - sums[j] - z * sums[cols_ + j]);
    }
  }
}

}  // namespace psring::worker
