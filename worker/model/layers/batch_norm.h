#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Batch normalisation of each column over the rows: y = activation((x - mean) / sqrt(variance + 1e-5) * weight + bias)
/// (Ioffe, Szegedy, arXiv:1502.03167), with the tensors and the arithmetic of PyTorch's BatchNorm1d: `weight` starts at
/// 1, `bias` at 0.
///
/// Training uses the mean and the variance (the mean square of x - mean) of the given rows, so of a micro-batch. It
/// also updates the buffers: `running_mean` and `running_var` move by a tenth towards these values, the variance with
/// divisor n - 1; `num_batches_tracked` (a scalar, in f32) counts the batches. Evaluation uses the running statistics.
///
/// For a single row, y = activation(bias), and running_var does not change; PyTorch throws an error in this case.
class BatchNorm final : public Layer {
 public:
  enum class Activation { none, relu };

  BatchNorm(std::string name, std::size_t cols, Activation activation);

  enum Tensor : std::size_t { kWeight, kBias };
  std::vector<TensorSpec> tensors() const override;
  enum StateTensor : std::size_t { kRunningMean, kRunningVar, kBatches };
  std::vector<TensorSpec> buffers() const override;
  Shape output(Shape in) const override;
  std::size_t saved_floats(Shape in) const override;
  std::size_t scratch_floats(Shape in) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  std::string name_;
  std::size_t cols_;
  Activation activation_;
};

}  // namespace psring::worker
