#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// y = activation(x W^T + b): x [rows, in], W [out, in] named `<name>.weight`, b [out] named `<name>.bias`.
/// W and b start uniform in +-1/sqrt(in), as PyTorch's nn.Linear does.
class Linear final : public Layer {
 public:
  enum class Activation { none, relu };
  struct Options {
    bool bias = true;
    Activation activation = Activation::none;
  };

  Linear(std::string name, std::size_t in, std::size_t out, Options options);

  std::vector<TensorSpec> tensors() const override;
  Shape output(Shape in) const override;
  std::size_t scratch_floats(Shape in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;
  std::unique_ptr<DeviceLayer> on_device() const override;

 private:
  std::string name_;
  std::size_t in_;
  std::size_t out_;
  Options options_;
};

}  // namespace psring::worker
