#pragma once

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

}  // namespace psring
