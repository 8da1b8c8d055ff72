#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>
#include <psring/worker/model/parallel/tensor_part.h>

namespace psring::worker {

/// y = activation(x W^T + b): x [rows, in], W [out, in] named `<name>.weight`, b [out] named `<name>.bias`.
/// W and b start uniform in +-1/sqrt(in), as PyTorch's nn.Linear does.
///
/// Under tensor parallelism a layer computes one part of `out` or of `in`:
/// - Cut::outputs (column-parallel): x is whole, y [rows, part of out]; backward sums dx over the group;
/// - Cut::inputs (row-parallel): x [rows, part of in]; forward sums y over the group, before the activation. y, dy and
///   the gradient of b are the same at all ranks.
/// A layer that cuts outputs and the layer after it that cuts inputs need one sum in forward and one in backward.
class Linear final : public Layer {
 public:
  enum class Activation { none, relu };
  enum class Cut { none, outputs, inputs };
  struct Options {
    bool bias = true;
    Activation activation = Activation::none;
    Cut cut = Cut::none;
    TensorPart part = {};
  };

  /// `in` and `out` are the widths of the whole layer.
  Linear(std::string name, std::size_t in, std::size_t out, Options options);

  std::vector<TensorSpec> tensors() const override;
  Shape output(Shape in) const override;
  std::size_t scratch_floats(Shape in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const override;
  LayerSums tensor_sums(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;
  std::unique_ptr<DeviceLayer> on_device() const override;

 private:
  bool cuts(Cut cut) const { return options_.cut == cut && !options_.part.whole(); }

  std::string name_;
  std::size_t whole_in_;
  std::size_t whole_out_;
  Options options_;
  std::size_t in_;  ///< of this part, as is out_
  std::size_t out_;
};

}  // namespace psring::worker
