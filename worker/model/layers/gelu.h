#pragma once

#include <span>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// y = GELU(x) in its tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel,
/// arXiv:1606.08415). The error is below 1e-6 of max(1, |x|), compared with f64. `y` may be `x`. The sizes must be
/// equal.
void gelu_forward(std::span<const float> x, std::span<float> y);

/// dx = dy * GELU'(x). `dx` may be `dy`. The sizes must be equal.
void gelu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx);

/// Both in one pass, for a backward without a saved output: y = GELU(x), d *= GELU'(x). y must be neither x nor d.
void gelu_again_and_backward(std::span<const float> x, std::span<float> y, std::span<float> d);

/// GELU as a layer without parameters.
class Gelu final : public Layer {
 public:
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;
  std::unique_ptr<DeviceLayer> on_device() const override;
};

}  // namespace psring::worker
