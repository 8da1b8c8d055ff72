#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/parallel/cross_entropy.h>

namespace psring::worker {
namespace {

class ParallelCrossEntropy final : public Loss {
 public:
  ParallelCrossEntropy(std::size_t classes, TensorPart part)
      : classes_(classes), part_(std::move(part)), columns_(part_.of(classes)) {}

  LossExchange tensor_sums(std::size_t rows) const override { return {.largest_f32 = rows, .sum_f64 = kSums * rows}; }

  LossResult evaluate(ConstMatrix y, const Targets& given, float scale, Matrix dy) const override {
    const std::span<const std::int32_t> targets = given.classes;
    check(targets.size() == y.rows && y.cols == columns_.size(), "cross-entropy: {} targets for {} x {}",
          targets.size(), y.rows, y.cols);
    check(dy.data == nullptr || (dy.rows == y.rows && dy.cols == y.cols), "loss: output {}x{}, gradient {}x{}", y.rows,
          y.cols, dy.rows, dy.cols);
    const std::span<std::byte> memory = part_.memory(parallel_cross_entropy_bytes(y.rows));
    const std::span sums(reinterpret_cast<double*>(memory.data()), kSums * y.rows);
    const std::span largest(reinterpret_cast<float*>(memory.data() + sums.size_bytes()), y.rows);
    find_largest(y, largest);
    add_up(y, targets, largest, sums, dy);
    LossResult result;
    result.rows = y.rows;
    for (std::size_t i = 0; i < y.rows; ++i) {
      const double* const row = sums.data() + kSums * i;
      result.loss_sum += std::log(row[kExponentials]) + (static_cast<double>(largest[i]) - row[kTarget]);
      if (row[kTarget] == static_cast<double>(largest[i]) && row[kEarlier] == 0) ++result.correct;
      if (dy.data == nullptr) continue;
      const auto share = static_cast<float>(static_cast<double>(scale) / row[kExponentials]);
      float* const out = dy.row(i);
      for (std::size_t j = 0; j < y.cols; ++j) out[j] *= share;
      if (has(targets[i])) out[static_cast<std::size_t>(targets[i]) - columns_.begin] -= scale;
    }
    return result;
  }

 private:
  enum Sum : std::size_t { kExponentials, kTarget, kEarlier, kSums };

  bool has(std::int32_t target) const {
    const auto column = static_cast<std::size_t>(target);
    return columns_.contains({column, column + 1});
  }

  void find_largest(ConstMatrix y, std::span<float> largest) const {
    for (std::size_t i = 0; i < y.rows; ++i) {
      largest[i] = y.row(i)[0];
      for (std::size_t j = 1; j < y.cols; ++j) largest[i] = std::max(largest[i], y.row(i)[j]);
    }
    part_.largest(largest);
  }

  /// Writes the exponentials to dy, if there is a dy.
  void add_up(ConstMatrix y, std::span<const std::int32_t> targets, std::span<const float> largest,
              std::span<double> sums, Matrix dy) const {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t i = 0; i < y.rows; ++i) {
      const std::int32_t target = targets[i];
      if (target < 0 || static_cast<std::size_t>(target) >= classes_)
        fail(ErrorKind::data, "target {} of row {} is not one of the model's {} classes", target, i, classes_);
      const float* const row = y.row(i);
      double* const out = sums.data() + kSums * i;
      for (std::size_t j = 0; j < y.cols; ++j) {
        const float exponential = std::exp(row[j] - largest[i]);  // at most 1, so that nothing overflows
        out[kExponentials] += static_cast<double>(exponential);
        if (dy.data != nullptr) dy.row(i)[j] = exponential;
        if (row[j] == largest[i] && columns_.begin + j < static_cast<std::size_t>(target)) out[kEarlier] += 1;
      }
      if (has(target)) out[kTarget] = static_cast<double>(row[static_cast<std::size_t>(target) - columns_.begin]);
    }
    part_.sum(sums);
  }

  std::size_t classes_;
  TensorPart part_;
  Range columns_;  ///< of this part
};

}  // namespace

std::unique_ptr<Loss> make_parallel_cross_entropy(std::size_t classes, const TensorPart& part) {
  return std::make_unique<ParallelCrossEntropy>(classes, part);
}

}  // namespace psring::worker
