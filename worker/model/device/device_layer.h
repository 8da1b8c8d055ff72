#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/device/tensor_kernels.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// A batch of token ids on the device, for a model of text; null and empty for others.
struct DeviceTokens {
  const std::int32_t* ids = nullptr;
  TokenRows rows;
};

/// As Forward, on a device: activations are matrices of the shapes that the layer states, in their one type.
struct DeviceForward {
  TensorKernels& kernels;
  std::span<const ConstElements> parameters;
  Shape in;
  ConstElements x;  ///< of a model of text the first layer has none, but `tokens`
  Elements y;
  float* saved;
  Elements saved_activations;
  Elements scratch;
  DeviceTokens tokens;
};

/// As Backward. Gradients that are not wanted are empty, and so is dx.
struct DeviceBackward {
  TensorKernels& kernels;
  std::span<const ConstElements> parameters;
  std::span<const BoundGradient> gradients;
  Shape in;
  ConstElements x;
  ConstElements y;
  ConstElements dy;
  Elements dx;
  float* saved;
  Elements saved_activations;
  Elements scratch;
  DeviceTokens tokens;

  bool wants_gradients() const { return !gradients.empty(); }
};

/// What a layer does on a device; see Layer, whose tensors and shapes it has. It queues kernels and does not wait.
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;

  /// Kept from forward for backward, as f32, and as activations; and what one call needs, as activations.
  virtual std::size_t saved_floats(Shape /*in*/) const { return 0; }
  virtual std::size_t saved_activations(Shape /*in*/) const { return 0; }
  virtual std::size_t scratch(Shape /*in*/) const { return 0; }

  virtual void forward(const DeviceForward& pass) const = 0;
  virtual void backward(const DeviceBackward& pass) const = 0;
};

/// What a gradient's writer multiplies by what is there: 0 for the first, who is the writer from then on; see Gradient.
inline float take_beta(const BoundGradient& gradient) {
  const float beta = *gradient.fresh ? 0.0F : 1.0F;
  *gradient.fresh = false;
  return beta;
}

/// gradient = beta * gradient + op(a) op(b).
inline void add_product(TensorKernels& kernels, const Gemm& shape, ConstElements a, ConstElements b,
                        const BoundGradient& gradient) {
  const bool first = take_beta(gradient) == 0;
  kernels.product({.shape = shape,
                   .a = a,
                   .b = b,
                   .out = gradient.values,
                   .added = first ? ConstElements() : ConstElements(gradient.values)});
}

}  // namespace psring::worker
