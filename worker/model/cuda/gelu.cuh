#pragma once

#include <cmath>

#include <cuda_runtime.h>

namespace psring::worker::cuda {

// GELU in its tanh form, as in worker/model/layers/gelu.h.

inline constexpr float kGeluScale = 0.7978845608028654F;  ///< sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715F;

__device__ inline float gelu_of(float x) { return 0.5F * x * (1.0F + tanhf(kGeluScale * (x + kGeluCube * x * x * x))); }

__device__ inline float gelu_slope(float x) {
  const float t = tanhf(kGeluScale * (x + kGeluCube * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kGeluScale * (1.0F + 3.0F * kGeluCube * x * x);
}

}  // namespace psring::worker::cuda
