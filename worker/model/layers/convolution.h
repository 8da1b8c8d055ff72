#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring {
struct Convolution;
}  // namespace psring

namespace psring::worker {

/// The sizes of an image. A row of activations holds one image, [channels, height, width], as PyTorch stores it.
struct ImageShape {
  std::size_t channels = 1;
  std::size_t height = 1;
  std::size_t width = 1;
  std::size_t elements() const { return channels * height * width; }
};

/// y = activation(x * W + b): a convolution with stride 1, and with zeros around the image, so that its height and
/// width stay, as PyTorch's nn.Conv2d with padding=kernel/2. W [out, in, kernel, kernel] is named `<name>.weight`, b
/// [out]
/// `<name>.bias`; both start uniform in +-1/sqrt(in kernel^2), as in PyTorch.
class Conv2d final : public Layer {
 public:
  enum class Activation { none, relu };
  struct Options {
    std::size_t out = 1;     ///< channels
    std::size_t kernel = 3;  ///< odd
    Activation activation = Activation::none;
  };

  Conv2d(std::string name, ImageShape in, Options options);

  std::vector<TensorSpec> tensors() const override;
  Shape output(Shape in) const override;
  std::size_t scratch_floats(Shape in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  Convolution convolution(std::size_t batch) const;

  std::string name_;
  ImageShape in_;
  Options options_;
};

/// The largest value of each window of size x size pixels, without overlap; pixels that fill no window are left out, as
/// in PyTorch's nn.MaxPool2d(size). The gradient goes to a window's first largest value, or to its last NaN.
class MaxPool final : public Layer {
 public:
  /// REQUIRES: 0 < size, and an image has at least one window.
  MaxPool(ImageShape in, std::size_t size);

  ImageShape image() const { return {in_.channels, in_.height / size_, in_.width / size_}; }
  Shape output(Shape in) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  template <class Visit>
  void for_each_window(const float* image, Visit&& visit) const;

  ImageShape in_;
  std::size_t size_;
};

}  // namespace psring::worker
