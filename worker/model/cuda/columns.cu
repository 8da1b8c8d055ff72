#include <psring/common/base/range.h>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

// Sums over the rows of a matrix, in two steps, both in order: first over the rows of each chunk, then over the chunks,
// which depend on the shape alone.

namespace psring::worker::cuda {
namespace {

constexpr unsigned kPacks = kWarp;  ///< packs of a row that a block reads: a warp reads 512 bytes of memory
constexpr unsigned kLines = 8;      ///< rows that a block reads at once
constexpr unsigned kAhead = 8;      ///< rows that a thread loads before it adds them
constexpr std::size_t kBlocks =
    528;  ///< of 16-bit elements, but for very wide rows: all run at once on 132 multiprocessors
constexpr std::size_t kLeastChunk = 64;

template <class T>
__host__ __device__ constexpr unsigned columns_of_block() {
  return kPacks * Pack<T>::kSize;
}
template <class T>
unsigned blocks_of(std::size_t cols) {
  return static_cast<unsigned>((cols + columns_of_block<T>() - 1) / columns_of_block<T>());
}

std::size_t rows_of_chunk(Rows shape) {
  const std::size_t most = std::max<std::size_t>(1, kBlocks / blocks_of<__half>(shape.cols));
  return std::max(kLeastChunk, (shape.rows + most - 1) / most);
}
std::size_t chunks_of(Rows shape) { return (shape.rows + rows_of_chunk(shape) - 1) / rows_of_chunk(shape); }

/// Loads 16 bytes of a row, or the elements that are left.
template <class T>
__device__ Pack<T> load_columns(const T* from, std::size_t left, bool wide) {
  if (wide) return Pack<T>::load(from);
  Pack<T> pack;
  for (unsigned i = 0; i < Pack<T>::kSize; ++i) pack.values[i] = i < left ? from[i] : from_float<T>(0);
  return pack;
}

/// For each column of the block, calls give(column, its sum). Each line of threads sums its own rows in order; then the
/// lines' sums are added in order.
template <class T, class Give>
__device__ void sum_rows(Range rows, std::size_t cols, bool wide, const T* dy, Give give) {
  constexpr unsigned kColumns = columns_of_block<T>();
  constexpr unsigned kSize = Pack<T>::kSize;
  __shared__ float sums[kLines][kColumns];  // column i of a pack lies at i * kPacks, to avoid bank conflicts
  const unsigned line = threadIdx.x / kPacks;
  const unsigned pack = threadIdx.x % kPacks;
  const std::size_t begin = std::size_t{blockIdx.x} * kColumns;
  const std::size_t first = begin + pack * kSize;
  float sum[kSize] = {};
  if (first < cols)
    for (std::size_t r = rows.begin + line; r < rows.end; r += kLines * kAhead) {
      Pack<T> packs[kAhead];
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k)
        if (r + k * kLines < rows.end)
          packs[k] = load_columns(dy + (r + k * kLines) * cols + first, cols - first, wide);
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k)
        if (r + k * kLines < rows.end)
          for (unsigned i = 0; i < kSize; ++i) sum[i] += to_float(packs[k].values[i]);
    }
  for (unsigned i = 0; i < kSize; ++i) sums[line][i * kPacks + pack] = sum[i];
  __syncthreads();
  static_assert(kColumns <= kPacks * kLines);
  const unsigned column = threadIdx.x;
  if (column >= kColumns || begin + column >= cols) return;
  float all = 0;
  for (unsigned l = 0; l < kLines; ++l) all += sums[l][column % kSize * kPacks + column / kSize];
  give(begin + column, all);
}

/// Writes the sums of each chunk of rows to `sums`, [chunks, cols].
template <class T>
__global__ void column_kernel(std::size_t rows, std::size_t cols, std::size_t rows_of_chunk, bool wide, const T* dy,
                              float* sums) {
  const std::size_t begin = blockIdx.y * rows_of_chunk;
  const std::size_t end = begin + rows_of_chunk < rows ? begin + rows_of_chunk : rows;
  sum_rows({begin, end}, cols, wide, dy, [&](std::size_t j, float sum) { sums[blockIdx.y * cols + j] = sum; });
}

template <class G>
__global__ void chunk_kernel(std::size_t chunks, std::size_t cols, bool wide, const float* sums, float beta, G* into) {
  sum_rows({0, chunks}, cols, wide, sums,
           [&](std::size_t j, float sum) { into[j] = from_float<G>(beta == 0 ? sum : to_float(into[j]) + sum); });
}

}  // namespace

cudaError_t sum_chunks(const Queue& queue, Rows chunks, const float* sums, float beta, Elements into) {
  cudaError_t error = kNoKernel;
  with_type(into.type(), [&](auto type) {
    using G = decltype(type);
    const bool wide = chunks.cols % Pack<float>::kSize == 0 && aligned(sums);
    error = launch(queue, &chunk_kernel<G>, blocks_of<float>(chunks.cols), kPacks * kLines, 0, chunks.rows, chunks.cols,
                   wide, sums, beta, reinterpret_cast<G*>(into.data()));
  });
  return error;
}

std::size_t column_scratch(Rows shape) { return chunks_of(shape) * shape.cols; }

cudaError_t column_sums(const Queue& queue, Rows shape, ConstElements dy, float beta, Elements into, float* scratch) {
  cudaError_t error = kNoKernel;
  const auto chunks = static_cast<unsigned>(chunks_of(shape));
  with_type(dy.type(), [&](auto type) {
    using T = decltype(type);
    const bool wide = shape.cols % Pack<T>::kSize == 0 && aligned(dy.data());
    error = launch(queue, &column_kernel<T>, dim3(blocks_of<T>(shape.cols), chunks), kPacks * kLines, 0, shape.rows,
                   shape.cols, rows_of_chunk(shape), wide, reinterpret_cast<const T*>(dy.data()), scratch);
  });
  return error != cudaSuccess ? error : sum_chunks(queue, {chunks, shape.cols}, scratch, beta, into);
}

}  // namespace psring::worker::cuda
