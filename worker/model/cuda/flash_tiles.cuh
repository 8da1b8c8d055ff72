#pragma once

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/matrix_unit.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/worker/model/cuda/kernels.h>

/// Tiles of attention's operands: blocks copy rows into shared memory, and multiply them on the matrix units. Arrays of
/// sums must stay in registers, so every loop over such an array is unrolled.
namespace psring::worker::cuda::flash {

constexpr unsigned kLanes = 32;
constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kLanes;
constexpr unsigned kSlice = 16;  ///< rows of a left operand
constexpr float kLog2E = 1.4426950408889634F;

/// Slices per warp. Each operand that is read from shared memory serves all slices. The registers that hold the sums
/// limit the number.
template <unsigned kDim>
constexpr unsigned kForwardSlices = kDim == 64 ? 2 : 1;
constexpr unsigned kBackwardSlices = 1;

/// Rows per block.
template <unsigned kSlices>
constexpr unsigned kOwn = kWarps* kSlices* kSlice;
/// Rows of the other side per tile. The registers that hold the products limit the number.
template <unsigned kDim>
constexpr unsigned kOther = kDim == 64 ? 64 : 32;
/// Distance between rows in shared memory, in elements. The 16 bytes of padding shift the banks, so that loading eight
/// rows causes no bank conflicts.
template <unsigned kDim>
constexpr unsigned kStride = kDim + 8;
/// Left operands, and sums over kColumns columns (products with rows, or sums of rows), for all slices.
template <unsigned kDim, unsigned kSlices>
using Left = std::uint32_t[kSlices][kDim / 16][4];
template <unsigned kColumns, unsigned kSlices>
using Sums = float[kSlices][kColumns / 8][4];

/// The rows of one head of queries, keys, values or outputs.
template <class T>
struct HeadRows {
  T* base;
  std::size_t stride;
  unsigned rows;
};

enum Part : unsigned { kQuery, kKey, kValue };

template <class T>
__device__ HeadRows<T> part_of(const AttentionShape& s, T* qkv, unsigned head, Part part) {
  return {qkv + head / s.heads * s.context * 3 * s.dim() + part * s.dim() + head % s.heads * s.head_dim, 3 * s.dim(),
          static_cast<unsigned>(s.context)};
}
template <class T>
__device__ HeadRows<T> whole_of(const AttentionShape& s, T* out, unsigned head) {
  return {out + head / s.heads * s.context * s.dim() + head % s.heads * s.head_dim, s.dim(),
          static_cast<unsigned>(s.context)};
}

/// Starts to copy rows [first, first + kRows); rows behind the last become 0.
template <unsigned kDim, unsigned kRows, class T>
__device__ void copy_rows(const HeadRows<const T>& from, unsigned first, T* to) {
  constexpr unsigned kChunks = kDim / 8;
  for (unsigned i = threadIdx.x; i < kRows * kChunks; i += kThreads) {
    const unsigned row = i / kChunks;
    const unsigned column = i % kChunks * 8;
    const bool there = first + row < from.rows;
    copy_async(to + row * kStride<kDim> + column, from.base + (there ? first + row : 0) * from.stride + column, there);
  }
}

template <unsigned kDim, unsigned kSlices, class T>
__device__ void load_left(const T* rows, Left<kDim, kSlices>& left) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned s = 0; s < kSlices; ++s)
#pragma unroll
    for (unsigned k = 0; k < kDim / 16; ++k)
      load_matrices(left[s][k], rows + (s * kSlice + lane % 16) * kStride<kDim> + k * 16 + lane / 16 * 8);
}

/// sums[s][j] = left[s] * (rows 8j..8j+7)^T: dot products with kRows rows.
template <unsigned kDim, unsigned kRows, unsigned kSlices, class T>
__device__ void times_rows(const Left<kDim, kSlices>& left, const T* rows, Sums<kRows, kSlices>& sums) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned j = 0; j < kRows / 8; j += 2) {
#pragma unroll
    for (unsigned s = 0; s < kSlices; ++s)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sums[s][j][i] = sums[s][j + 1][i] = 0;
#pragma unroll
    for (unsigned k = 0; k < kDim / 16; ++k) {
      std::uint32_t right[4];
      load_matrices(right, rows + (j * 8 + lane % 8 + lane / 16 * 8) * kStride<kDim> + k * 16 + lane / 8 % 2 * 8);
      const std::uint32_t first[2] = {right[0], right[1]};
      const std::uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (unsigned s = 0; s < kSlices; ++s) {
        multiply_add(sums[s][j], left[s][k], first, T{});
        multiply_add(sums[s][j + 1], left[s][k], second, T{});
      }
    }
  }
}

/// sums += weights * rows. `weights`: kRows weights per row, in the layout of a product's sums, rounded to T.
template <unsigned kDim, unsigned kRows, unsigned kSlices, class T>
__device__ void add_rows(const Sums<kRows, kSlices>& weights, const T* rows, Sums<kDim, kSlices>& sums) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned j = 0; j < kRows / 8; j += 2) {
    std::uint32_t left[kSlices][4];
#pragma unroll
    for (unsigned s = 0; s < kSlices; ++s)
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const float* const pair = weights[s][j + i / 2] + i % 2 * 2;
        left[s][i] = pair_of(pair[0], pair[1], T{});
      }
#pragma unroll
    for (unsigned n = 0; n < kDim / 8; n += 2) {
      std::uint32_t right[4];
      load_transposed(right, rows + (j * 8 + lane % 16) * kStride<kDim> + n * 8 + lane / 16 * 8);
      const std::uint32_t first[2] = {right[0], right[1]};
      const std::uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (unsigned s = 0; s < kSlices; ++s) {
        multiply_add(sums[s][n], left[s], first, T{});
        multiply_add(sums[s][n + 1], left[s], second, T{});
      }
    }
  }
}

/// Writes a slice's rows from `first` on, each multiplied by a factor (for rows g and g + 8).
template <unsigned kDim, class T>
__device__ void store_rows(const float (&sums)[kDim / 8][4], const float (&factor)[2], unsigned first,
                           const HeadRows<T>& to) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned row = first + lane / 4 + half * 8;
    if (row >= to.rows) continue;
#pragma unroll
    for (unsigned n = 0; n < kDim / 8; ++n) {
      const std::uint32_t pair = pair_of(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half], T{});
      *reinterpret_cast<std::uint32_t*>(to.base + row * to.stride + n * 8 + lane % 4 * 2) = pair;
    }
  }
}

}  // namespace psring::worker::cuda::flash
