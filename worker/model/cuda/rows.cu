#include <psring/common/base/range.h>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

// Kernels over the rows of a matrix: layer norm, and sums over rows. A warp handles a row and reads it several times;
// all reads but the first hit the first-level cache. Sums over rows have two steps, both in order: first over the rows
// of each chunk, then over the chunks.

namespace psring::worker::cuda {
namespace {

constexpr unsigned kRowThreads = 256;
constexpr unsigned kRowsAtOnce = kRowThreads / kWarp;  ///< rows per block
constexpr float kEpsilon = 1e-5F;

constexpr unsigned kPacks = 8;        ///< packs of a row that a block of a sum over rows reads
constexpr unsigned kLines = 32;       ///< rows that such a block reads at once
constexpr std::size_t kChunks = 256;  ///< chunks of rows, at most
constexpr std::size_t kLeastChunk = 64;

template <class T>
__host__ __device__ constexpr unsigned columns_of_block() {
  return kPacks * Pack<T>::kSize;
}

std::size_t rows_of_chunk(std::size_t rows) { return std::max(kLeastChunk, (rows + kChunks - 1) / kChunks); }
std::size_t chunks_of(std::size_t rows) { return (rows + rows_of_chunk(rows) - 1) / rows_of_chunk(rows); }

/// Calls body(column, place, values) for each column of this lane; `values` holds each input's element, or 0 if the
/// input is null. If `wide`, the lane reads 16 bytes at a time, and `place` is the index within these 16 bytes, known
/// at compile time.
template <unsigned kInputs, class T, class Body>
__device__ void for_columns(const T* const (&inputs)[kInputs], std::size_t cols, bool wide, Body body) {
  const unsigned lane = threadIdx.x % kWarp;
  float values[kInputs] = {};
  if (!wide) {
    for (std::size_t j = lane; j < cols; j += kWarp) {
      for (unsigned n = 0; n < kInputs; ++n)
        if (inputs[n] != nullptr) values[n] = to_float(inputs[n][j]);
      body(j, 0U, values);
    }
    return;
  }
  for (std::size_t j = std::size_t{lane} * Pack<T>::kSize; j < cols; j += kWarp * Pack<T>::kSize) {
    Pack<T> packs[kInputs];
    for (unsigned n = 0; n < kInputs; ++n)
      if (inputs[n] != nullptr) packs[n] = Pack<T>::load(inputs[n] + j);
#pragma unroll
    for (unsigned i = 0; i < Pack<T>::kSize; ++i) {
      for (unsigned n = 0; n < kInputs; ++n)
        if (inputs[n] != nullptr) values[n] = to_float(packs[n].values[i]);
      body(j + i, i, values);
    }
  }
}

/// Writes f(values) to each column.
template <unsigned kInputs, class T, class F>
__device__ void map_columns(const T* const (&inputs)[kInputs], T* to, std::size_t cols, bool wide, F f) {
  Pack<T> pack;
  for_columns(inputs, cols, wide, [&](std::size_t j, unsigned place, const float(&values)[kInputs]) {
    if (!wide) {
      to[j] = from_float<T>(f(values));
      return;
    }
    pack.values[place] = from_float<T>(f(values));
    if (place == Pack<T>::kSize - 1) pack.store(to + j - place);
  });
}

template <class T>
__global__ void norm_kernel(std::size_t rows, std::size_t cols, bool wide, const T* x, const T* weight, const T* bias,
                            float* saved, T* y, bool again) {
  const std::size_t stride = std::size_t{gridDim.x} * kRowsAtOnce;
  for (std::size_t r = std::size_t{blockIdx.x} * kRowsAtOnce + threadIdx.x / kWarp; r < rows; r += stride) {
    const T* const row = x + r * cols;
    float mean = 0;
    float scale = 0;
    if (again) {
      mean = saved[2 * r];
      scale = saved[2 * r + 1];
    } else {
      float sum = 0;
      for_columns<1, T>({row}, cols, wide, [&](std::size_t, unsigned, const float(&value)[1]) { sum += value[0]; });
      mean = warp_sum(sum) / static_cast<float>(cols);
      float squares = 0;
      for_columns<1, T>({row}, cols, wide, [&](std::size_t, unsigned, const float(&value)[1]) {
        squares += (value[0] - mean) * (value[0] - mean);
      });
      scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(cols) + kEpsilon);
      if (threadIdx.x % kWarp == 0) {
        saved[2 * r] = mean;
        saved[2 * r + 1] = scale;
      }
    }
    map_columns<3, T>({row, weight, bias}, y + r * cols, cols, wide,
                      [&](const float(&in)[3]) { return (in[0] - mean) * scale * in[1] + in[2]; });
  }
}

/// With g = dy * weight and z the normalised x: dx = scale * (g - mean(g) - z * mean(g z)) + residual.
template <class T>
__global__ void norm_inputs_kernel(std::size_t rows, std::size_t cols, bool wide, const T* x, const T* weight,
                                   const float* saved, const T* dy, const T* residual, T* dx) {
  const std::size_t stride = std::size_t{gridDim.x} * kRowsAtOnce;
  for (std::size_t r = std::size_t{blockIdx.x} * kRowsAtOnce + threadIdx.x / kWarp; r < rows; r += stride) {
    const T* const row = x + r * cols;
    const T* const d = dy + r * cols;
    const float mean = saved[2 * r];
    const float scale = saved[2 * r + 1];
    float sum_g = 0;
    float sum_gz = 0;
    for_columns<3, T>({d, weight, row}, cols, wide, [&](std::size_t, unsigned, const float(&in)[3]) {
      const float g = in[0] * in[1];
      sum_g += g;
      sum_gz += g * ((in[2] - mean) * scale);
    });
    const float mean_g = warp_sum(sum_g) / static_cast<float>(cols);
    const float mean_gz = warp_sum(sum_gz) / static_cast<float>(cols);
    const T* const kept = residual == nullptr ? nullptr : residual + r * cols;
    map_columns<4, T>({d, weight, row, kept}, dx + r * cols, cols, wide, [&](const float(&in)[4]) {
      const float z = (in[2] - mean) * scale;
      return in[3] + scale * (in[0] * in[1] - mean_g - z * mean_gz);
    });
  }
}

/// Loads 16 bytes of a row, or as many elements as are left.
template <class T>
__device__ Pack<T> load_columns(const T* from, std::size_t left, bool wide) {
  if (wide) return Pack<T>::load(from);
  Pack<T> pack;
  for (unsigned i = 0; i < Pack<T>::kSize; ++i) pack.values[i] = i < left ? from[i] : from_float<T>(0);
  return pack;
}

/// For each column of the block, calls give(column, the sum of dy, the sum of dy times the normalised x); the second
/// sum is 0 if x is null. Each line of threads sums its own rows in order; then the lines' sums are added in order.
template <class T, class Give>
__device__ void sum_rows(Range rows, std::size_t cols, bool wide, const T* dy, const T* x, const float* saved,
                         Give give) {
  constexpr unsigned kColumns = columns_of_block<T>();
  constexpr unsigned kSize = Pack<T>::kSize;
  __shared__ float plain[kLines][kColumns + kPacks];  // column i of a pack lies at i * kPacks, to avoid bank conflicts
  __shared__ float times[kLines][kColumns + kPacks];
  const unsigned line = threadIdx.x / kPacks;
  const unsigned pack = threadIdx.x % kPacks;
  const unsigned first = pack * kSize;
  const std::size_t begin = std::size_t{blockIdx.x} * kColumns;
  float sum[kSize] = {};
  float sum_z[kSize] = {};
  if (begin + first < cols)
    for (std::size_t r = rows.begin + line; r < rows.end; r += kLines) {
      const std::size_t at = r * cols + begin + first;
      const std::size_t left = cols - begin - first;
      const Pack<T> values = load_columns(dy + at, left, wide);
      for (unsigned i = 0; i < kSize; ++i) sum[i] += to_float(values.values[i]);
      if (x == nullptr) continue;
      const Pack<T> normal = load_columns(x + at, left, wide);
      const float mean = saved[2 * r];
      const float scale = saved[2 * r + 1];
      for (unsigned i = 0; i < kSize; ++i)
        sum_z[i] += to_float(values.values[i]) * ((to_float(normal.values[i]) - mean) * scale);
    }
  for (unsigned i = 0; i < kSize; ++i) {
    plain[line][i * kPacks + pack] = sum[i];
    if (x != nullptr) times[line][i * kPacks + pack] = sum_z[i];
  }
  __syncthreads();
  const unsigned column = threadIdx.x;
  if (column >= kColumns || begin + column >= cols) return;
  float all = 0;
  float all_z = 0;
  const unsigned place = column % kSize * kPacks + column / kSize;
  for (unsigned l = 0; l < kLines; ++l) {
    all += plain[l][place];
    if (x != nullptr) all_z += times[l][place];
  }
  give(begin + column, all, all_z);
}

/// Writes the sums of each chunk of rows to `sums`: first those of dy, [chunks, cols], then those of dy times the
/// normalised x if x is not null.
template <class T>
__global__ void column_kernel(std::size_t rows, std::size_t cols, std::size_t rows_of_chunk, bool wide, const T* dy,
                              const T* x, const float* saved, float* sums) {
  const std::size_t begin = blockIdx.y * rows_of_chunk;
  const std::size_t end = begin + rows_of_chunk < rows ? begin + rows_of_chunk : rows;
  sum_rows({begin, end}, cols, wide, dy, x, saved, [&](std::size_t j, float sum, float sum_z) {
    sums[blockIdx.y * cols + j] = sum;
    if (x != nullptr) sums[(std::size_t{gridDim.y} + blockIdx.y) * cols + j] = sum_z;
  });
}

template <class G>
__global__ void chunk_kernel(std::size_t chunks, std::size_t cols, bool wide, const float* sums, float beta, G* into) {
  const float* const none = nullptr;
  sum_rows({0, chunks}, cols, wide, sums, none, none, [&](std::size_t j, float sum, float) {
    into[j] = from_float<G>(beta == 0 ? sum : to_float(into[j]) + sum);
  });
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}

unsigned row_blocks(const Queue& queue, std::size_t rows) { return blocks_for(queue, rows * kWarp, kRowThreads); }

cudaError_t sum_chunks(const Queue& queue, Rows shape, const float* sums, float beta, Elements into) {
  cudaError_t error = kNoKernel;
  with_type(into.type(), [&](auto type) {
    using G = decltype(type);
    constexpr unsigned kColumns = columns_of_block<float>();
    const bool wide = shape.cols % Pack<float>::kSize == 0 && aligned(sums);
    error =
        launch(queue, &chunk_kernel<G>, static_cast<unsigned>((shape.cols + kColumns - 1) / kColumns), kPacks * kLines,
               0, chunks_of(shape.rows), shape.cols, wide, sums, beta, reinterpret_cast<G*>(into.data()));
  });
  return error;
}

cudaError_t sum_columns(const Queue& queue, Rows shape, ConstElements dy, ConstElements x, const float* saved,
                        float* sums) {
  cudaError_t error = kNoKernel;
  with_type(dy.type(), [&](auto type) {
    using T = decltype(type);
    constexpr unsigned kColumns = columns_of_block<T>();
    const bool wide = shape.cols % Pack<T>::kSize == 0 && aligned(dy.data()) && aligned(x.data());
    const dim3 grid(static_cast<unsigned>((shape.cols + kColumns - 1) / kColumns),
                    static_cast<unsigned>(chunks_of(shape.rows)));
    error = launch(queue, &column_kernel<T>, grid, kPacks * kLines, 0, shape.rows, shape.cols,
                   rows_of_chunk(shape.rows), wide, as<T>(dy), x.empty() ? nullptr : as<T>(x), saved, sums);
  });
  return error;
}

}  // namespace

std::size_t column_scratch(Rows shape) { return 2 * chunks_of(shape.rows) * shape.cols; }

cudaError_t column_sums(const Queue& queue, Rows shape, ConstElements dy, float beta, Elements into, float* scratch) {
  const cudaError_t error = sum_columns(queue, shape, dy, {}, nullptr, scratch);
  return error != cudaSuccess ? error : sum_chunks(queue, shape, scratch, beta, into);
}

cudaError_t layer_norm(const Queue& queue, Rows shape, ConstElements x, ConstElements weight, ConstElements bias,
                       float* saved, Elements y, bool again) {
  cudaError_t error = kNoKernel;
  with_type(x.type(), [&](auto type) {
    using T = decltype(type);
    const bool wide = shape.cols % Pack<T>::kSize == 0 && aligned(x.data()) && aligned(weight.data()) &&
                      aligned(bias.data()) && aligned(y.data());
    error = launch(queue, &norm_kernel<T>, row_blocks(queue, shape.rows), kRowThreads, 0, shape.rows, shape.cols, wide,
                   as<T>(x), as<T>(weight), as<T>(bias), saved, reinterpret_cast<T*>(y.data()), again);
  });
  return error;
}

cudaError_t layer_norm_inputs(const Queue& queue, Rows shape, ConstElements x, ConstElements weight, const float* saved,
                              ConstElements dy, ConstElements residual, Elements dx) {
  cudaError_t error = kNoKernel;
  with_type(x.type(), [&](auto type) {
    using T = decltype(type);
    const bool wide = shape.cols % Pack<T>::kSize == 0 && aligned(x.data()) && aligned(weight.data()) &&
                      aligned(dy.data()) && aligned(residual.data()) && aligned(dx.data());
    error = launch(queue, &norm_inputs_kernel<T>, row_blocks(queue, shape.rows), kRowThreads, 0, shape.rows, shape.cols,
                   wide, as<T>(x), as<T>(weight), saved, as<T>(dy), residual.empty() ? nullptr : as<T>(residual),
                   reinterpret_cast<T*>(dx.data()));
  });
  return error;
}

cudaError_t layer_norm_parameters(const Queue& queue, Rows shape, ConstElements x, const float* saved, ConstElements dy,
                                  const TensorKernels::NormGradients& gradients, float* scratch) {
  cudaError_t error = sum_columns(queue, shape, dy, x, saved, scratch);
  if (error == cudaSuccess) error = sum_chunks(queue, shape, scratch, gradients.bias_beta, gradients.bias);
  if (error != cudaSuccess) return error;
  return sum_chunks(queue, shape, scratch + chunks_of(shape.rows) * shape.cols, gradients.weight_beta,
                    gradients.weight);
}

}  // namespace psring::worker::cuda
