#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/loss.h>

namespace psring::worker {
namespace {

void check_gradient(ConstMatrix y, Matrix dy) {
  check(dy.data == nullptr || (dy.rows == y.rows && dy.cols == y.cols), "loss: output {}x{}, gradient {}x{}", y.rows,
        y.cols, dy.rows, dy.cols);
}

std::size_t first_largest(const float* row, std::size_t n) {
  std::size_t best = 0;
  for (std::size_t j = 1; j < n; ++j)
    if (row[j] > row[best]) best = j;
  return best;
}

/// The binary cross-entropy of sigmoid(y) and a target; writes the gradient of scale * loss if `dy` is not null.
double logistic_loss(float y, double target, float scale, float* dy) {
  const auto logit = static_cast<double>(y);
  const double small = std::exp(-std::fabs(logit));
  if (dy != nullptr) {
    const double probability = logit >= 0 ? 1 / (1 + small) : small / (1 + small);
    *dy = scale * static_cast<float>(probability - target);
  }
  return std::max(logit, 0.0) - logit * target + std::log1p(small);
}

class CrossEntropy final : public Loss {
 public:
  OnDevice on_device() const override { return OnDevice::cross_entropy; }
  LossResult evaluate(ConstMatrix y, const Targets& given, float scale, Matrix dy) const override {
    const std::span<const std::int32_t> targets = given.classes;
    check(targets.size() == y.rows, "cross-entropy: {} targets for {} rows", targets.size(), y.rows);
    check_gradient(y, dy);
    LossResult result;
    result.rows = y.rows;
    std::vector<float> exponentials(y.cols);
    for (std::size_t i = 0; i < y.rows; ++i) {
      const std::int32_t target = targets[i];
      if (target < 0 || static_cast<std::size_t>(target) >= y.cols)
        fail(ErrorKind::data, "target {} of row {} is not one of the model's {} classes", target, i, y.cols);
      const float* const row = y.row(i);
      const std::size_t best = first_largest(row, y.cols);
      if (best == static_cast<std::size_t>(target)) ++result.correct;
      double sum = 0;
      for (std::size_t j = 0; j < y.cols; ++j) {
        exponentials[j] = std::exp(row[j] - row[best]);  // at most 1, so that nothing overflows
        sum += static_cast<double>(exponentials[j]);
      }
      result.loss_sum += std::log(sum) + (static_cast<double>(row[best]) - static_cast<double>(row[target]));
      if (dy.data == nullptr) continue;
      const auto share = static_cast<float>(static_cast<double>(scale) / sum);
      float* const out = dy.row(i);
      for (std::size_t j = 0; j < y.cols; ++j) out[j] = exponentials[j] * share;
      out[target] -= scale;
    }
    return result;
  }
};

class MeanSquare final : public Loss {
 public:
  OnDevice on_device() const override { return OnDevice::mean_square; }
  LossResult evaluate(ConstMatrix y, const Targets& /*targets*/, float scale, Matrix dy) const override {
    check_gradient(y, dy);
    LossResult result;
    result.rows = y.rows;
    for (std::size_t i = 0; i < y.rows; ++i) result.loss_sum += sum_of_squares(y.row(i), y.cols);
    result.loss_sum /= static_cast<double>(y.cols);
    if (dy.data == nullptr) return result;
    const float factor = 2 * scale / static_cast<float>(y.cols);
    for (std::size_t i = 0; i < y.size(); ++i) dy.data[i] = factor * y.data[i];
    return result;
  }

 private:
  /// Eight independent sums, so that additions do not wait for each other; their order is fixed.
  static double sum_of_squares(const float* row, std::size_t n) {
    double lanes[8] = {};
    for (std::size_t j = 0; j < n; ++j) lanes[j % 8] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
};

class SquaredError final : public Loss {
 public:
  LossResult evaluate(ConstMatrix y, const Targets& targets, float scale, Matrix dy) const override {
    const ConstMatrix& wanted = targets.values;
    check(wanted.rows == y.rows && wanted.cols == y.cols, "squared error: output {}x{}, targets {}x{}", y.rows, y.cols,
          wanted.rows, wanted.cols);
    check_gradient(y, dy);
    LossResult result;
    result.rows = y.rows;
    const float factor = 2 * scale / static_cast<float>(y.cols);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float error = y.data[i] - wanted.data[i];
      result.loss_sum += static_cast<double>(error) * static_cast<double>(error);
      if (dy.data != nullptr) dy.data[i] = factor * error;
    }
    result.loss_sum /= static_cast<double>(y.cols);
    return result;
  }
};

class BinaryCrossEntropy final : public Loss {
 public:
  LossResult evaluate(ConstMatrix y, const Targets& given, float scale, Matrix dy) const override {
    const std::span<const std::int32_t> targets = given.classes;
    check(y.cols == 1 && targets.size() == y.rows, "binary cross-entropy: {} targets for {}x{}", targets.size(), y.rows,
          y.cols);
    check_gradient(y, dy);
    LossResult result;
    result.rows = y.rows;
    for (std::size_t i = 0; i < y.rows; ++i) {
      if (targets[i] != 0 && targets[i] != 1) fail(ErrorKind::data, "target {} of row {} is not 0 or 1", targets[i], i);
      if ((y.data[i] > 0) == (targets[i] == 1)) ++result.correct;
      result.loss_sum += logistic_loss(y.data[i], targets[i], scale, dy.data == nullptr ? nullptr : dy.data + i);
    }
    return result;
  }
};

class NegativeSampling final : public Loss {
 public:
  LossResult evaluate(ConstMatrix y, const Targets& /*targets*/, float scale, Matrix dy) const override {
    check_gradient(y, dy);
    LossResult result;
    result.rows = y.rows;
    for (std::size_t i = 0; i < y.size(); ++i)
      result.loss_sum +=
          logistic_loss(y.data[i], i % y.cols == 0 ? 1 : 0, scale, dy.data == nullptr ? nullptr : dy.data + i);
    return result;
  }
};

}  // namespace

std::unique_ptr<Loss> make_cross_entropy() { return std::make_unique<CrossEntropy>(); }
std::unique_ptr<Loss> make_mean_square() { return std::make_unique<MeanSquare>(); }
std::unique_ptr<Loss> make_squared_error() { return std::make_unique<SquaredError>(); }
std::unique_ptr<Loss> make_binary_cross_entropy() { return std::make_unique<BinaryCrossEntropy>(); }
std::unique_ptr<Loss> make_negative_sampling() { return std::make_unique<NegativeSampling>(); }

}  // namespace psring::worker
