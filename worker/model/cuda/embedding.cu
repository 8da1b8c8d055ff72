#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/worker/model/cuda/kernels.h>

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 128;  ///< of a block; one thread per column

template <class T>
__global__ void embed_kernel(std::size_t rows, std::size_t cols, std::size_t context, const std::int32_t* ids,
                             const T* tokens, const T* places, T* y) {
  for (std::size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* const token = tokens + static_cast<std::size_t>(ids[r]) * cols;
    const T* const place = places + r % context * cols;
    for (std::size_t j = threadIdx.x; j < cols; j += blockDim.x)
      y[r * cols + j] = from_float<T>(to_float(token[j]) + to_float(place[j]));
  }
}

/// sum += value(k), value(k + 1)... while at least kAtOnce values are left. kAtOnce loads are in flight at once.
template <std::int32_t kAtOnce, class Value>
__device__ void add_rows(Value value, std::int32_t& k, std::int32_t end, float& sum) {
  for (; k + kAtOnce <= end; k += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (std::int32_t n = 0; n < kAtOnce; ++n) values[n] = value(k + n);
#pragma unroll
    for (std::int32_t n = 0; n < kAtOnce; ++n) sum += values[n];
  }
}

/// A thread sums one column of a token's rows, in order, and adds the sum to the gradient.
template <class T, class G>
__global__ void tokens_kernel(std::size_t cols, TokenRows tokens, const T* dy, G* gradient) {
  const std::size_t j = std::size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (j >= cols) return;
  const auto value = [&](std::int32_t k) { return to_float(dy[static_cast<std::size_t>(tokens.rows[k]) * cols + j]); };
  for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < *tokens.distinct;
       i += static_cast<std::int32_t>(gridDim.x)) {
    float sum = 0;
    std::int32_t k = tokens.begin[i];
    const std::int32_t end = tokens.begin[i + 1];
    add_rows<16>(value, k, end, sum);  // for frequent tokens, which have many rows
    add_rows<4>(value, k, end, sum);
    add_rows<1>(value, k, end, sum);
    G* const into = gradient + static_cast<std::size_t>(tokens.ids[i]) * cols + j;
    *into = from_float<G>(to_float(*into) + sum);
  }
}

template <class T, class G>
__global__ void places_kernel(std::size_t rows, std::size_t cols, std::size_t context, const T* dy, G* gradient,
                              float beta) {
  const std::size_t place = blockIdx.x;
  for (std::size_t j = threadIdx.x; j < cols; j += blockDim.x) {
    float sum = 0;
    for (std::size_t r = place; r < rows; r += context) sum += to_float(dy[r * cols + j]);
    G* const into = gradient + place * cols + j;
    *into = from_float<G>(beta == 0 ? sum : to_float(*into) + sum);
  }
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}

}  // namespace

cudaError_t embedding(const Queue& queue, Rows shape, std::size_t context, const std::int32_t* ids,
                      ConstElements tokens, ConstElements places, Elements y) {
  cudaError_t error = kNoKernel;
  with_type(y.type(), [&](auto type) {
    using T = decltype(type);
    error = launch(queue, &embed_kernel<T>, blocks_for(queue, shape.rows * kThreads, kThreads), kThreads, 0, shape.rows,
                   shape.cols, context, ids, as<T>(tokens), as<T>(places), reinterpret_cast<T*>(y.data()));
  });
  return error;
}

cudaError_t embedding_tokens(const Queue& queue, Rows shape, const TokenRows& tokens, ConstElements dy,
                             Elements d_tokens) {
  cudaError_t error = kNoKernel;
  with_type(dy.type(), [&](auto type) {
    with_type(d_tokens.type(), [&](auto gradient) {
      using T = decltype(type);
      using G = decltype(gradient);
      // The host does not know the number of tokens, and tokens have very different numbers of rows.
      const dim3 grid(blocks_for(queue, shape.rows * kThreads, kThreads),
                      static_cast<unsigned>((shape.cols + kThreads - 1) / kThreads));
      error = launch(queue, &tokens_kernel<T, G>, grid, kThreads, 0, shape.cols, tokens, as<T>(dy),
                     reinterpret_cast<G*>(d_tokens.data()));
    });
  });
  return error;
}

cudaError_t embedding_places(const Queue& queue, Rows shape, std::size_t context, ConstElements dy, Elements d_places,
                             float beta) {
  cudaError_t error = kNoKernel;
  with_type(dy.type(), [&](auto type) {
    with_type(d_places.type(), [&](auto gradient) {
      using T = decltype(type);
      using G = decltype(gradient);
      error = launch(queue, &places_kernel<T, G>, static_cast<unsigned>(context), kThreads, 0, shape.rows, shape.cols,
                     context, as<T>(dy), reinterpret_cast<G*>(d_places.data()), beta);
    });
  });
  return error;
}

}  // namespace psring::worker::cuda
