#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Batch normalisation of each column over the rows, y = activation((x - mean) / sqrt(variance + 1e-5) * weight +
/// bias) (Ioffe, Szegedy, arXiv:1502.03167), with the tensors and the arithmetic of PyTorch's BatchNorm1d: `weight`
/// starts at 1, `bias` at 0.
///
/// Training takes mean and variance (the mean square of x - mean) of the rows that it is given, so of a micro-batch,
/// and moves the buffers: `running_mean` and `running_var` go a tenth of the way to them, the variance with n - 1
/// below the sum; `num_batches_tracked` (a scalar, in f32) counts. Evaluation takes the running ones.
///
/// Of a single row y = activation(bias), and running_var stays; PyTorch refuses one.
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
