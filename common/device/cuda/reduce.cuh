#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace psring::cuda {

// Sums and maxima over the threads of a warp or a block, in a fixed order. All threads must call them, and all threads
// get the result.

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr unsigned kMostWarps = 32;  ///< of a block

template <class T, class Combine>
__device__ T warp_reduce(T value, Combine combine) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, bits));
  return value;
}
template <class T>
__device__ T warp_sum(T value) {
  return warp_reduce(value, [](T a, T b) { return a + b; });
}
__device__ inline float warp_max(float value) {
  return warp_reduce(value, [](float a, float b) { return fmaxf(a, b); });
}

/// `room`: one element per warp in shared memory; reusable after a barrier. REQUIRES: whole warps along x.
template <class T, class Combine>
__device__ T block_reduce(T value, T nothing, T* room, Combine combine) {
  value = warp_reduce(value, combine);
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) room[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarp ? room[lane] : nothing;
  return warp_reduce(value, combine);
}

/// Returns the sum of the values of all threads before this one; `all` receives the sum of all values. `room`: one
/// element per warp in shared memory; reusable at once.
template <class T>
__device__ T block_sum_before(T value, T* room, T& all) {
  const unsigned lane = threadIdx.x % kWarp;
  T sum = value;
  for (unsigned below = 1; below < kWarp; below *= 2) {
    const T below_sum = __shfl_up_sync(kAllLanes, sum, below);
    if (lane >= below) sum += below_sum;
  }
  if (lane == kWarp - 1) room[threadIdx.x / kWarp] = sum;
  __syncthreads();
  T before = sum - value;
  all = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) {
    if (warp < threadIdx.x / kWarp) before += room[warp];
    all += room[warp];
  }
  __syncthreads();
  return before;
}

/// Returns whether this block is the last of the grid to arrive here. It then reads by __ldcg what the others have
/// written before. `arrived`: zero before the kernel, and after.
__device__ inline bool last_block(std::uint32_t* arrived) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1U) == gridDim.x - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace psring::cuda
