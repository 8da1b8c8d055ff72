#include <bit>

#include <psring/common/device/cuda/dynamic_shared.cuh>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

// Attention for every type and every head_dim up to kMostHeadDim, computed in f32. A warp handles one row of one head.
// For scores, each lane takes one row of the other side; for sums over these rows, each lane takes every 32nd column.
// cuDNN's kernels (fused_attention.h) replace these where they exist: they use the matrix units, for 16-bit types.

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kMostHeadDim = 256;
constexpr unsigned kColumns = kMostHeadDim / kWarp;  ///< of a lane, at most

unsigned row_blocks(std::size_t rows) { return static_cast<unsigned>((rows + kWarps - 1) / kWarps); }

/// The position of a head's rows in memory: row i begins at base + i * stride.
template <class T>
struct HeadRows {
  T* base;
  std::size_t stride;
  __device__ T* row(std::size_t i) const { return base + i * stride; }
};

/// The row and head that a warp handles.
struct Place {
  std::size_t batch, head, row;
};
__device__ inline Place place_of(const AttentionShape& s, std::size_t index) {
  return {index / (s.context * s.heads), index / s.context % s.heads, index % s.context};
}

enum Part : std::size_t { kQuery, kKey, kValue };

template <class T>
__device__ HeadRows<T> part_of(const AttentionShape& s, T* qkv, const Place& at, Part part) {
  return {qkv + at.batch * s.context * 3 * s.dim() + part * s.dim() + at.head * s.head_dim, 3 * s.dim()};
}
template <class T>
__device__ HeadRows<T> whole_of(const AttentionShape& s, T* out, const Place& at) {
  return {out + at.batch * s.context * s.dim() + at.head * s.head_dim, s.dim()};
}

/// Loads the warp's row into shared memory, as f32.
template <class T>
__device__ void load_row(const T* from, std::size_t size, float* to) {
  for (std::size_t j = threadIdx.x % kWarp; j < size; j += kWarp) to[j] = to_float(from[j]);
}
template <class T>
__device__ float dot(const float* a, const T* b, std::size_t size) {
  float sum = 0;
  for (std::size_t j = 0; j < size; ++j) sum += a[j] * to_float(b[j]);
  return sum;
}

/// sums[c] += factor of lane l * rows[first + l][lane's columns], for all l.
template <class T>
__device__ void add_rows(float factor, const HeadRows<const T>& rows, std::size_t first, unsigned count,
                         std::size_t size, float (&sums)[kColumns]) {
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned l = 0; l < count; ++l) {
    const float row_factor = __shfl_sync(kAllLanes, factor, static_cast<int>(l));
    const T* const row = rows.row(first + l);
    for (unsigned c = 0; c < kColumns; ++c)
      if (lane + c * kWarp < size) sums[c] += row_factor * to_float(row[lane + c * kWarp]);
  }
}
template <class T>
__device__ void store_columns(const float (&sums)[kColumns], float factor, std::size_t size, T* to) {
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned c = 0; c < kColumns; ++c)
    if (lane + c * kWarp < size) to[lane + c * kWarp] = from_float<T>(sums[c] * factor);
}

template <class T>
__global__ void forward_kernel(AttentionShape s, float scale, const T* qkv, T* out, float* log_sums) {
  const std::size_t index = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= s.head_rows()) return;
  const unsigned lane = threadIdx.x % kWarp;
  const Place at = place_of(s, index);
  float* const query = dynamic_shared<float>() + threadIdx.x / kWarp * s.head_dim;
  load_row(part_of(s, qkv, at, kQuery).row(at.row), s.head_dim, query);
  __syncwarp();
  const HeadRows<const T> keys = part_of(s, qkv, at, kKey);
  const HeadRows<const T> values = part_of(s, qkv, at, kValue);
  float largest = -INFINITY;
  float sum = 0;
  float sums[kColumns] = {};
  for (std::size_t first = 0; first <= at.row; first += kWarp) {
    const std::size_t left = at.row + 1 - first;
    const unsigned count = left < kWarp ? static_cast<unsigned>(left) : kWarp;
    const float score = lane < count ? scale * dot(query, keys.row(first + lane), s.head_dim) : -INFINITY;
    const float now = fmaxf(largest, warp_max(score));
    const float before = expf(largest - now);
    const float p = expf(score - now);
    largest = now;
    sum = sum * before + warp_sum(p);
    for (float& column : sums) column *= before;
    add_rows(p, values, first, count, s.head_dim, sums);
  }
  store_columns(sums, 1 / sum, s.head_dim, whole_of(s, out, at).row(at.row));
  if (lane == 0) log_sums[index] = largest + logf(sum);
}

/// Computes the dot product of out and d_out for each row and head.
template <class T>
__global__ void delta_kernel(AttentionShape s, const T* out, const T* d_out, float* delta) {
  const std::size_t index = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= s.head_rows()) return;
  const Place at = place_of(s, index);
  const T* const a = whole_of(s, out, at).row(at.row);
  const T* const b = whole_of(s, d_out, at).row(at.row);
  float sum = 0;
  for (std::size_t j = threadIdx.x % kWarp; j < s.head_dim; j += kWarp) sum += to_float(a[j]) * to_float(b[j]);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) delta[index] = sum;
}

/// The same, if the number of lanes that read a head (16 bytes each) is a power of 2: a warp handles one row of all
/// heads.
template <class T>
__global__ void wide_delta_kernel(AttentionShape s, unsigned lanes_of_head, const T* out, const T* d_out,
                                  float* delta) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (row >= s.batch * s.context) return;
  const unsigned lane = threadIdx.x % kWarp;
  const auto packs = static_cast<unsigned>(s.heads) * lanes_of_head;
  const std::size_t batch = row / s.context;
  for (unsigned first = 0; first < packs; first += kWarp) {
    const unsigned pack = first + lane;
    float sum = 0;
    if (pack < packs) {
      const std::size_t at = row * s.dim() + std::size_t{pack} * Pack<T>::kSize;
      const auto a = Pack<T>::load(out + at);
      const auto b = Pack<T>::load(d_out + at);
      for (unsigned i = 0; i < Pack<T>::kSize; ++i) sum += to_float(a.values[i]) * to_float(b.values[i]);
    }
    for (unsigned bits = lanes_of_head / 2; bits > 0; bits /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(bits));
    if (pack < packs && pack % lanes_of_head == 0)
      delta[(batch * s.heads + pack / lanes_of_head) * s.context + (row - batch * s.context)] = sum;
  }
}

template <class T>
cudaError_t dot_rows(const Queue& queue, const AttentionShape& s, const T* out, const T* d_out, float* delta) {
  const std::size_t lanes = s.head_dim / Pack<T>::kSize;
  const bool wide = s.head_dim % Pack<T>::kSize == 0 && std::has_single_bit(lanes) && lanes <= kWarp && aligned(out) &&
                    aligned(d_out);
  if (!wide) return launch(queue, &delta_kernel<T>, row_blocks(s.head_rows()), kThreads, 0, s, out, d_out, delta);
  return launch(queue, &wide_delta_kernel<T>, row_blocks(s.batch * s.context), kThreads, 0, s,
                static_cast<unsigned>(lanes), out, d_out, delta);
}

/// A warp handles one query row, with all keys up to its own position.
template <class T>
__global__ void query_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums,
                                      const T* d_out, const float* delta, T* d_qkv) {
  const std::size_t index = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= s.head_rows()) return;
  const unsigned lane = threadIdx.x % kWarp;
  const Place at = place_of(s, index);
  float* const query = dynamic_shared<float>() + threadIdx.x / kWarp * 2 * s.head_dim;
  float* const d = query + s.head_dim;
  load_row(part_of(s, qkv, at, kQuery).row(at.row), s.head_dim, query);
  load_row(whole_of(s, d_out, at).row(at.row), s.head_dim, d);
  __syncwarp();
  const HeadRows<const T> keys = part_of(s, qkv, at, kKey);
  const HeadRows<const T> values = part_of(s, qkv, at, kValue);
  float sums[kColumns] = {};
  for (std::size_t first = 0; first <= at.row; first += kWarp) {
    const std::size_t left = at.row + 1 - first;
    const unsigned count = left < kWarp ? static_cast<unsigned>(left) : kWarp;
    float d_score = 0;
    if (lane < count) {
      const float p = expf(scale * dot(query, keys.row(first + lane), s.head_dim) - log_sums[index]);
      d_score = scale * p * (dot(d, values.row(first + lane), s.head_dim) - delta[index]);
    }
    add_rows(d_score, keys, first, count, s.head_dim, sums);
  }
  store_columns(sums, 1, s.head_dim, part_of(s, d_qkv, at, kQuery).row(at.row));
}

/// A warp handles one key row and value row, with all queries from its own position on.
template <class T>
__global__ void key_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums, const T* d_out,
                                    const float* delta, T* d_qkv) {
  const std::size_t index = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= s.head_rows()) return;
  const unsigned lane = threadIdx.x % kWarp;
  const Place at = place_of(s, index);
  float* const key = dynamic_shared<float>() + threadIdx.x / kWarp * 2 * s.head_dim;
  float* const value = key + s.head_dim;
  load_row(part_of(s, qkv, at, kKey).row(at.row), s.head_dim, key);
  load_row(part_of(s, qkv, at, kValue).row(at.row), s.head_dim, value);
  __syncwarp();
  const HeadRows<const T> queries = part_of(s, qkv, at, kQuery);
  const HeadRows<const T> d = whole_of(s, d_out, at);
  const std::size_t head_begin = index - at.row;
  float d_key[kColumns] = {};
  float d_value[kColumns] = {};
  for (std::size_t first = at.row; first < s.context; first += kWarp) {
    const std::size_t left = s.context - first;
    const unsigned count = left < kWarp ? static_cast<unsigned>(left) : kWarp;
    float p = 0;
    float d_score = 0;
    if (lane < count) {
      const std::size_t row = first + lane;
      p = expf(scale * dot(key, queries.row(row), s.head_dim) - log_sums[head_begin + row]);
      d_score = scale * p * (dot(value, d.row(row), s.head_dim) - delta[head_begin + row]);
    }
    add_rows(p, d, first, count, s.head_dim, d_value);
    add_rows(d_score, queries, first, count, s.head_dim, d_key);
  }
  store_columns(d_key, 1, s.head_dim, part_of(s, d_qkv, at, kKey).row(at.row));
  store_columns(d_value, 1, s.head_dim, part_of(s, d_qkv, at, kValue).row(at.row));
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}

}  // namespace

cudaError_t attention(const Queue& queue, const AttentionShape& shape, ConstElements qkv, Elements out,
                      float* log_sums) {
  if (shape.head_dim > kMostHeadDim) return kNoKernel;
  cudaError_t error = kNoKernel;
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  with_type(qkv.type(), [&](auto type) {
    using T = decltype(type);
    error = launch(queue, &forward_kernel<T>, row_blocks(shape.head_rows()), kThreads,
                   kWarps * shape.head_dim * sizeof(float), shape, scale, as<T>(qkv), reinterpret_cast<T*>(out.data()),
                   log_sums);
  });
  return error;
}

cudaError_t attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv, ConstElements out,
                               const float* log_sums, ConstElements d_out, Elements d_qkv, float* scratch) {
  if (shape.head_dim > kMostHeadDim) return kNoKernel;
  cudaError_t error = kNoKernel;
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  with_type(qkv.type(), [&](auto type) {
    using T = decltype(type);
    const unsigned blocks = row_blocks(shape.head_rows());
    const std::size_t shared = 2 * kWarps * shape.head_dim * sizeof(float);
    T* const gradient = reinterpret_cast<T*>(d_qkv.data());
    error = dot_rows(queue, shape, as<T>(out), as<T>(d_out), scratch);
    if (error != cudaSuccess) return;
    error = launch(queue, &query_gradient_kernel<T>, blocks, kThreads, shared, shape, scale, as<T>(qkv), log_sums,
                   as<T>(d_out), scratch, gradient);
    if (error != cudaSuccess) return;
    error = launch(queue, &key_gradient_kernel<T>, blocks, kThreads, shared, shape, scale, as<T>(qkv), log_sums,
                   as<T>(d_out), scratch, gradient);
  });
  return error;
}

}  // namespace psring::worker::cuda
