#pragma once

#include <memory>
#include <span>

#include <psring/common/device/kernels.h>

namespace psring {

// Convolutions as matrix products over each image's patches (im2col), for those that oneDNN has no fast kernel for. The
// arguments are those of Kernels::convolve and its gradients; there is no activation.

void convolve_by_products(Kernels& kernels, const Convolution& shape, const float* x, const float* w, const float* bias,
                          float* y, std::span<float> scratch);
void convolve_input_by_products(Kernels& kernels, const Convolution& shape, const float* dy, const float* w, float* dx,
                                std::span<float> scratch);
void convolve_weights_by_products(Kernels& kernels, const Convolution& shape, const float* x, const float* dy,
                                  float beta, float* dw, float bias_beta, float* db, std::span<float> scratch);

/// oneDNN's convolutions. Each function returns false, and writes nothing, if oneDNN has no fast kernel for the shape,
/// or if its kernel needs more scratch than there is. Called with the number of threads set; the number is always the
/// same. The arguments are those of Kernels; there is no activation.
class CpuConvolutions {
 public:
  CpuConvolutions();
  ~CpuConvolutions();

  bool forward(const Convolution& shape, const float* x, const float* w, const float* bias, float* y,
               std::span<float> scratch);
  bool backward_input(const Convolution& shape, const float* dy, const float* w, float* dx, std::span<float> scratch);
  bool backward_weights(const Convolution& shape, const float* x, const float* dy, float beta, float* dw,
                        float bias_beta, float* db, std::span<float> scratch);

 private:
  class Prepared;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring
