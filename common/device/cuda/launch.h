#pragma once

#include <cuda_runtime.h>

#include <psring/common/base/dtype.h>
#include <psring/common/base/elements.h>

namespace psring::cuda {

// Kernels of elements, launched on a stream. All elements lie on the device. A type that no kernel was compiled for
// returns kNoKernel.

inline constexpr auto kNoKernel = static_cast<cudaError_t>(98);  // cudaErrorInvalidDeviceFunction

/// A queue of work, and the number of multiprocessors that it runs on.
struct Queue {
  cudaStream_t stream = nullptr;
  unsigned multiprocessors = 1;
};

cudaError_t convert(const Queue& queue, ConstElements from, Elements to);
cudaError_t multiply(const Queue& queue, Elements values, float factor);
cudaError_t add(const Queue& queue, Elements sum, ConstElements values);
cudaError_t subtract(const Queue& queue, Elements from, ConstElements values);
cudaError_t round_values(const Queue& queue, DType type, Elements values);

}  // namespace psring::cuda
