#pragma once

#include <algorithm>
#include <cstddef>

#include <cuda_runtime.h>

#include <psring/common/device/cuda/launch.h>

namespace psring::cuda {

template <class... Parameters, class... Arguments>
cudaError_t launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                   std::size_t shared_bytes, Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Returns a number of blocks for `items` threads, limited to the threads that fit on the GPU's multiprocessors. The
/// kernels' loops handle the remaining items.
inline unsigned blocks_for(const Queue& queue, std::size_t items, unsigned threads) {
  const std::size_t most = std::size_t{queue.multiprocessors} * (2048 / threads);
  return static_cast<unsigned>(std::max<std::size_t>(1, std::min(most, (items + threads - 1) / threads)));
}

inline bool aligned(const void* at) { return reinterpret_cast<std::size_t>(at) % 16 == 0; }

}  // namespace psring::cuda
