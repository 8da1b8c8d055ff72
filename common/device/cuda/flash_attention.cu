#include <psring/common/device/cuda/dynamic_shared.cuh>
#include <psring/common/device/cuda/flash_attention.h>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/matrix_unit.cuh>
#include <psring/common/device/cuda/numbers.cuh>

namespace psring::cuda {
namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kThreads = 128;
constexpr unsigned kOwn = 64;  ///< rows of a block, 16 a warp
constexpr float kLog2E = 1.4426950408889634F;

/// Of the rows that a block goes along: as many at once as registers hold the products of.
template <unsigned kDim>
constexpr unsigned kOther = kDim == 64 ? 64 : 32;
/// Elements from one row to the next in shared memory: rows that lie 16 bytes apart in the banks, so that loads of
/// eight of them do not meet.
template <unsigned kDim>
constexpr unsigned kStride = kDim + 8;

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

/// Starts to copy rows [first, first + kRows); zeros behind the last.
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

/// Left operands of 16 rows: of kDim / 16 products.
template <unsigned kDim, class T>
__device__ void load_left(const T* rows, std::uint32_t (&left)[kDim / 16][4]) {
  const unsigned lane = threadIdx.x % kLanes;
  for (unsigned k = 0; k < kDim / 16; ++k)
    load_matrices(left[k], rows + lane % 16 * kStride<kDim> + k * 16 + lane / 16 * 8);
}

/// sums[j] = left * (rows 8j..8j+7)^T: dot products with kRows rows.
template <unsigned kDim, unsigned kRows, class T>
__device__ void times_rows(const std::uint32_t (&left)[kDim / 16][4], const T* rows, float (&sums)[kRows / 8][4]) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned j = 0; j < kRows / 8; j += 2) {
    for (unsigned i = 0; i < 4; ++i) sums[j][i] = sums[j + 1][i] = 0;
#pragma unroll
    for (unsigned k = 0; k < kDim / 16; ++k) {
      std::uint32_t right[4];
      load_matrices(right, rows + (j * 8 + lane % 8 + lane / 16 * 8) * kStride<kDim> + k * 16 + lane / 8 % 2 * 8);
      const std::uint32_t first[2] = {right[0], right[1]};
      const std::uint32_t second[2] = {right[2], right[3]};
      multiply_add(sums[j], left[k], first, T{});
      multiply_add(sums[j + 1], left[k], second, T{});
    }
  }
}

template <class T>
__device__ std::uint32_t pair_of(float first, float second) {
  const T values[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t bits;
  memcpy(&bits, values, sizeof(bits));
  return bits;
}

/// sums += weights * rows: 16 x kRows weights, as sums of products leave them, rounded to T.
template <unsigned kDim, unsigned kRows, class T>
__device__ void add_rows(const float (&weights)[kRows / 8][4], const T* rows, float (&sums)[kDim / 8][4]) {
  const unsigned lane = threadIdx.x % kLanes;
#pragma unroll
  for (unsigned j = 0; j < kRows / 8; j += 2) {
    const std::uint32_t left[4] = {pair_of<T>(weights[j][0], weights[j][1]), pair_of<T>(weights[j][2], weights[j][3]),
                                   pair_of<T>(weights[j + 1][0], weights[j + 1][1]),
                                   pair_of<T>(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (unsigned n = 0; n < kDim / 8; n += 2) {
      std::uint32_t right[4];
      load_transposed(right, rows + (j * 8 + lane % 16) * kStride<kDim> + n * 8 + lane / 16 * 8);
      const std::uint32_t first[2] = {right[0], right[1]};
      const std::uint32_t second[2] = {right[2], right[3]};
      multiply_add(sums[n], left, first, T{});
      multiply_add(sums[n + 1], left, second, T{});
    }
  }
}

/// Writes 16 rows from `first` on, times a factor each (of rows g and g + 8).
template <unsigned kDim, class T>
__device__ void store_rows(const float (&sums)[kDim / 8][4], const float (&factor)[2], unsigned first,
                           const HeadRows<T>& to) {
  const unsigned lane = threadIdx.x % kLanes;
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned row = first + lane / 4 + half * 8;
    if (row >= to.rows) continue;
    for (unsigned n = 0; n < kDim / 8; ++n) {
      const std::uint32_t pair = pair_of<T>(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
      *reinterpret_cast<std::uint32_t*>(to.base + row * to.stride + n * 8 + lane % 4 * 2) = pair;
    }
  }
}

__device__ inline float quad_reduce_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// Which block of rows of which head: those that have most to do first.
struct BlockPlace {
  unsigned head;
  unsigned first;
};
__device__ inline BlockPlace longest_first(const AttentionShape& s, bool later_is_longer) {
  const auto heads = static_cast<unsigned>(s.batch * s.heads);
  const unsigned blocks = gridDim.x / heads;
  const unsigned block = blockIdx.x / heads;
  return {blockIdx.x % heads, (later_is_longer ? blocks - 1 - block : block) * kOwn};
}

/// Two tiles of the other side's rows, in turn: one is copied while the other is computed with.
template <unsigned kDim, class T>
struct Tiles {
  static constexpr unsigned kElements = kOther<kDim> * kStride<kDim>;
  T* memory;
  __device__ T* first(unsigned turn) const { return memory + turn % 2 * 2 * kElements; }
  __device__ T* second(unsigned turn) const { return first(turn) + kElements; }
};

template <unsigned kDim>
constexpr std::size_t kSharedElements = 2 * kOwn* kStride<kDim> + 4 * kOther<kDim>* kStride<kDim>;

template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape s, float scale, const T* qkv, T* out, float* log_sums) {
  constexpr unsigned kRows = kOther<kDim>;
  const BlockPlace at = longest_first(s, true);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = threadIdx.x / kLanes;
  T* const own = dynamic_shared<T>();
  const Tiles<kDim, T> tiles{own + 2 * kOwn * kStride<kDim>};
  const auto keys = part_of(s, qkv, at.head, kKey);
  const auto values = part_of(s, qkv, at.head, kValue);
  const unsigned end = at.first + kOwn < keys.rows ? at.first + kOwn : keys.rows;  // of the keys that are met
  const unsigned turns = (end + kRows - 1) / kRows;

  copy_rows<kDim, kOwn>(part_of(s, qkv, at.head, kQuery), at.first, own);
  copy_rows<kDim, kRows>(keys, 0, tiles.first(0));
  copy_rows<kDim, kRows>(values, 0, tiles.second(0));
  end_copies();

  const float scale2 = scale * kLog2E;
  const unsigned row = at.first + warp * 16 + lane / 4;  // and row + 8
  std::uint32_t query[kDim / 16][4];
  float sums[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  for (unsigned turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns) {
      copy_rows<kDim, kRows>(keys, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(values, (turn + 1) * kRows, tiles.second(turn + 1));
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    if (turn == 0) load_left<kDim>(own + warp * 16 * kStride<kDim>, query);
    float scores[kRows / 8][4];
    times_rows<kDim, kRows>(query, tiles.first(turn), scores);
    float now[2] = {largest[0], largest[1]};
    for (unsigned j = 0; j < kRows / 8; ++j)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned key = turn * kRows + j * 8 + lane % 4 * 2 + i % 2;
        scores[j][i] = key <= row + i / 2 * 8 ? scores[j][i] * scale2 : -INFINITY;
        now[i / 2] = fmaxf(now[i / 2], scores[j][i]);
      }
    float before[2];
    for (unsigned h = 0; h < 2; ++h) {
      now[h] = quad_reduce_max(now[h]);  // finite: key 0 is met first
      before[h] = exp2f(largest[h] - now[h]);
      largest[h] = now[h];
      total[h] *= before[h];
    }
    for (unsigned j = 0; j < kRows / 8; ++j)
      for (unsigned i = 0; i < 4; ++i) {
        scores[j][i] = exp2f(scores[j][i] - now[i / 2]);
        total[i / 2] += scores[j][i];
      }
    for (unsigned n = 0; n < kDim / 8; ++n)
      for (unsigned i = 0; i < 4; ++i) sums[n][i] *= before[i / 2];
    add_rows<kDim, kRows>(scores, tiles.second(turn), sums);
    __syncthreads();  // the tile may be overwritten
  }
  float factor[2];
  for (unsigned h = 0; h < 2; ++h) {
    total[h] = quad_sum(total[h]);
    factor[h] = 1 / total[h];
    if (lane % 4 == 0 && row + h * 8 < keys.rows)
      log_sums[std::size_t{at.head} * keys.rows + row + h * 8] = (largest[h] + log2f(total[h])) / kLog2E;
  }
  store_rows<kDim>(sums, factor, at.first + warp * 16, whole_of(s, out, at.head));
}

/// The gradient of a block of queries, along the keys up to them.
template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums, const T* d_out,
                          const float* delta, T* d_qkv) {
  constexpr unsigned kRows = kOther<kDim>;
  const BlockPlace at = longest_first(s, true);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = threadIdx.x / kLanes;
  T* const own = dynamic_shared<T>();
  T* const own_d = own + kOwn * kStride<kDim>;
  const Tiles<kDim, T> tiles{own + 2 * kOwn * kStride<kDim>};
  const auto keys = part_of(s, qkv, at.head, kKey);
  const auto values = part_of(s, qkv, at.head, kValue);
  const unsigned end = at.first + kOwn < keys.rows ? at.first + kOwn : keys.rows;
  const unsigned turns = (end + kRows - 1) / kRows;

  copy_rows<kDim, kOwn>(part_of(s, qkv, at.head, kQuery), at.first, own);
  copy_rows<kDim, kOwn>(whole_of(s, d_out, at.head), at.first, own_d);
  copy_rows<kDim, kRows>(keys, 0, tiles.first(0));
  copy_rows<kDim, kRows>(values, 0, tiles.second(0));
  end_copies();

  const unsigned row = at.first + warp * 16 + lane / 4;
  float log_sum[2];
  float of_row[2];
  for (unsigned h = 0; h < 2; ++h) {
    const bool there = row + h * 8 < keys.rows;
    const std::size_t index = std::size_t{at.head} * keys.rows + row + h * 8;
    log_sum[h] = there ? log_sums[index] * kLog2E : INFINITY;
    of_row[h] = there ? delta[index] : 0;
  }
  const float scale2 = scale * kLog2E;
  std::uint32_t query[kDim / 16][4];
  std::uint32_t d[kDim / 16][4];
  float sums[kDim / 8][4] = {};
  for (unsigned turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns) {
      copy_rows<kDim, kRows>(keys, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(values, (turn + 1) * kRows, tiles.second(turn + 1));
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    if (turn == 0) {
      load_left<kDim>(own + warp * 16 * kStride<kDim>, query);
      load_left<kDim>(own_d + warp * 16 * kStride<kDim>, d);
    }
    float scores[kRows / 8][4];
    float d_scores[kRows / 8][4];
    times_rows<kDim, kRows>(query, tiles.first(turn), scores);
    times_rows<kDim, kRows>(d, tiles.second(turn), d_scores);
    for (unsigned j = 0; j < kRows / 8; ++j)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned key = turn * kRows + j * 8 + lane % 4 * 2 + i % 2;
        const float p = key <= row + i / 2 * 8 ? exp2f(scores[j][i] * scale2 - log_sum[i / 2]) : 0.0F;
        d_scores[j][i] = scale * p * (d_scores[j][i] - of_row[i / 2]);
      }
    add_rows<kDim, kRows>(d_scores, tiles.first(turn), sums);
    __syncthreads();
  }
  const float one[2] = {1, 1};
  store_rows<kDim>(sums, one, at.first + warp * 16, part_of(s, d_qkv, at.head, kQuery));
}

/// The gradients of a block of keys and their values, along the queries from them on. Products are transposed: a row
/// is a key, a column a query.
template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums, const T* d_out,
                        const float* delta, T* d_qkv) {
  constexpr unsigned kRows = kOther<kDim>;
  const BlockPlace at = longest_first(s, false);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = threadIdx.x / kLanes;
  T* const own = dynamic_shared<T>();
  T* const own_values = own + kOwn * kStride<kDim>;
  const Tiles<kDim, T> tiles{own + 2 * kOwn * kStride<kDim>};
  const auto queries = part_of(s, qkv, at.head, kQuery);
  const auto d = whole_of(s, d_out, at.head);
  const unsigned begin = at.first / kRows;  // the first tile of queries that sees the first key
  const unsigned end = (queries.rows + kRows - 1) / kRows;

  copy_rows<kDim, kOwn>(part_of(s, qkv, at.head, kKey), at.first, own);
  copy_rows<kDim, kOwn>(part_of(s, qkv, at.head, kValue), at.first, own_values);
  copy_rows<kDim, kRows>(queries, begin * kRows, tiles.first(begin));
  copy_rows<kDim, kRows>(d, begin * kRows, tiles.second(begin));
  end_copies();

  const float scale2 = scale * kLog2E;
  const unsigned row = at.first + warp * 16 + lane / 4;
  float d_keys[kDim / 8][4] = {};
  float d_values[kDim / 8][4] = {};
  for (unsigned turn = begin; turn < end; ++turn) {
    if (turn + 1 < end) {
      copy_rows<kDim, kRows>(queries, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(d, (turn + 1) * kRows, tiles.second(turn + 1));
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    float scores[kRows / 8][4];
    float d_scores[kRows / 8][4];
    {
      std::uint32_t left[kDim / 16][4];
      load_left<kDim>(own + warp * 16 * kStride<kDim>, left);
      times_rows<kDim, kRows>(left, tiles.first(turn), scores);
      load_left<kDim>(own_values + warp * 16 * kStride<kDim>, left);
      times_rows<kDim, kRows>(left, tiles.second(turn), d_scores);
    }
    for (unsigned j = 0; j < kRows / 8; ++j)
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned query = turn * kRows + j * 8 + lane % 4 * 2 + i;
        const bool there = query < queries.rows;
        const std::size_t index = std::size_t{at.head} * queries.rows + query;
        const float log_sum = there ? log_sums[index] * kLog2E : INFINITY;
        const float of_row = there ? delta[index] : 0.0F;
        for (unsigned h = 0; h < 2; ++h) {
          float& p = scores[j][2 * h + i];
          p = row + h * 8 <= query ? exp2f(p * scale2 - log_sum) : 0.0F;
          d_scores[j][2 * h + i] = scale * p * (d_scores[j][2 * h + i] - of_row);
        }
      }
    add_rows<kDim, kRows>(scores, tiles.second(turn), d_values);
    add_rows<kDim, kRows>(d_scores, tiles.first(turn), d_keys);
    __syncthreads();
  }
  const float one[2] = {1, 1};
  store_rows<kDim>(d_keys, one, at.first + warp * 16, part_of(s, d_qkv, at.head, kKey));
  store_rows<kDim>(d_values, one, at.first + warp * 16, part_of(s, d_qkv, at.head, kValue));
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}

template <class Kernel, class... Arguments>
cudaError_t launch_flash(const Queue& queue, const AttentionShape& shape, std::size_t shared_bytes, Kernel kernel,
                         Arguments... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  const std::size_t blocks = (shape.context + kOwn - 1) / kOwn * shape.batch * shape.heads;
  return launch(queue, kernel, static_cast<unsigned>(blocks), kThreads, shared_bytes, shape,
                1 / std::sqrt(static_cast<float>(shape.head_dim)), arguments...);
}

/// body(T{}, head_dim as a constant)
template <class Body>
cudaError_t with_shape(const AttentionShape& shape, DType type, Body body) {
  const auto with_dim = [&](auto of) {
    return shape.head_dim == 64 ? body(of, std::integral_constant<unsigned, 64>{})
                                : body(of, std::integral_constant<unsigned, 128>{});
  };
  return type == DType::bf16 ? with_dim(__nv_bfloat16{}) : with_dim(__half{});
}

}  // namespace

bool flash_fits(const AttentionShape& shape, DType type) {
  return (type == DType::bf16 || type == DType::f16) && (shape.head_dim == 64 || shape.head_dim == 128);
}

cudaError_t flash_attention(const Queue& queue, const AttentionShape& shape, ConstElements qkv, Elements out,
                            float* log_sums) {
  return with_shape(shape, qkv.type(), [&](auto type, auto dim) {
    using T = decltype(type);
    return launch_flash(queue, shape, kSharedElements<dim> * sizeof(T), &forward_kernel<dim, T>, as<T>(qkv),
                        reinterpret_cast<T*>(out.data()), log_sums);
  });
}

cudaError_t flash_attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv,
                                     const float* log_sums, ConstElements d_out, const float* delta, Elements d_qkv) {
  return with_shape(shape, qkv.type(), [&](auto type, auto dim) {
    using T = decltype(type);
    T* const gradient = reinterpret_cast<T*>(d_qkv.data());
    const std::size_t shared = kSharedElements<dim> * sizeof(T);
    const cudaError_t error = launch_flash(queue, shape, shared, &query_gradient_kernel<dim, T>, as<T>(qkv), log_sums,
                                           as<T>(d_out), delta, gradient);
    if (error != cudaSuccess) return error;
    return launch_flash(queue, shape, shared, &key_gradient_kernel<dim, T>, as<T>(qkv), log_sums, as<T>(d_out), delta,
                        gradient);
  });
}

}  // namespace psring::cuda
