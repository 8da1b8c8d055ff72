#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/worker/model/device/tensor_kernels.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// A batch of token ids on the device for text models; empty for other models.
struct DeviceTokens {
  const std::int32_t* ids = nullptr;
  TokenRows rows;
};

/// Like Forward, on a device: activations are matrices in the layer's shapes, all of one type.
struct DeviceForward {
  TensorKernels& kernels;
  std::span<const ConstElements> parameters;
  Shape in;
  ConstElements x;  ///< empty for the first layer of a text model, which reads `tokens`
  Elements y;
  float* saved;
  Elements saved_activations;
  Elements scratch;
  DeviceTokens tokens;
};

/// Like Backward. Gradients that are not wanted, and an unwanted dx, are empty.
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

/// Computes a layer on a device. It has the tensors and shapes of its Layer, queues kernels and does not wait.
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;

  /// Sizes of the buffers: saved from forward for backward as f32 and as activations, and scratch of one call as
  /// activations.
  virtual std::size_t saved_floats(Shape /*in*/) const { return 0; }
  virtual std::size_t saved_activations(Shape /*in*/) const { return 0; }
  virtual std::size_t scratch(Shape /*in*/) const { return 0; }

  virtual void forward(const DeviceForward& pass) const = 0;
  virtual void backward(const DeviceBackward& pass) const = 0;
};

/// Returns the factor of the existing gradient: 0 for the first writer, 1 for later writers; see Gradient.
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
