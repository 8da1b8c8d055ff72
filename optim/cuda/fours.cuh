#pragma once

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/optim/codec/codes.h>
#include <psring/optim/cuda/compress.h>

// The codecs' kernels share these: f32 values, four at a time.

namespace psring::optim::cuda {

using psring::cuda::blocks_for;
using psring::cuda::kWarp;
using psring::cuda::launch;
using psring::cuda::Queue;
using Four = psring::cuda::Pack<float>;

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarps = kThreads / kWarp;

inline const float* floats(ConstElements elements) { return reinterpret_cast<const float*>(elements.data()); }
inline float* floats(Elements elements) { return reinterpret_cast<float*>(elements.data()); }

__device__ inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

__device__ inline std::size_t thread_of_grid() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t threads_of_grid() { return std::size_t{gridDim.x} * blockDim.x; }

/// Loads at[i, i + 4), with zeros beyond the end.
__device__ inline Four load_four(const float* at, std::size_t i, std::size_t size) {
  if (i + Four::kSize <= size) return Four::load(at + i);
  Four four{};
#pragma unroll
  for (unsigned j = 0; j < Four::kSize; ++j)
    if (i + j < size) four.values[j] = at[i + j];
  return four;
}
__device__ inline void store_four(const Four& four, float* at, std::size_t i, std::size_t size) {
  if (i + Four::kSize <= size) return four.store(at + i);
#pragma unroll
  for (unsigned j = 0; j < Four::kSize; ++j)
    if (i + j < size) at[i + j] = four.values[j];
}

inline unsigned warps_for(const Queue& queue, std::size_t warps) { return blocks_for(queue, warps * kWarp, kThreads); }
inline unsigned fours_for(const Queue& queue, std::size_t size) {
  return blocks_for(queue, blocks_of(size, Four::kSize), kThreads);
}

}  // namespace psring::optim::cuda
