#include <psring/common/device/cuda/dynamic_shared.cuh>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/worker/model/cuda/flash_attention.h>
#include <psring/worker/model/cuda/flash_tiles.cuh>

namespace psring::worker::cuda {
namespace {

using namespace flash;

__device__ inline float quad_reduce_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// Maximum number of heads whose blocks run together, so that their shared rows of the other side stay in the
/// second-level cache.
constexpr unsigned kHeadsTogether = 32;

/// The block of rows and the head of this thread block. Among heads that run together, the blocks with the most work
/// start first.
struct BlockPlace {
  unsigned head;
  unsigned first;
};
template <unsigned kRows>
__device__ BlockPlace longest_first(const AttentionShape& s, bool later_is_longer) {
  const auto all = static_cast<unsigned>(s.batch * s.heads);
  const unsigned blocks = gridDim.x / all;
  const unsigned groups = (all + kHeadsTogether - 1) / kHeadsTogether;
  const unsigned most = (all + groups - 1) / groups;  // heads per group, evenly: a small last group would finish late
  const unsigned begin = blockIdx.x / (most * blocks) * most;
  const unsigned heads = all - begin < most ? all - begin : most;
  const unsigned index = blockIdx.x - begin * blocks;
  const unsigned block = index / heads;
  return {begin + index % heads, (later_is_longer ? blocks - 1 - block : block) * kRows};
}

/// Two tiles of the other side's rows, used alternately: one is copied while the other is used.
template <unsigned kDim, class T>
struct Tiles {
  static constexpr unsigned kElements = kOther<kDim> * kStride<kDim>;
  T* memory;
  __device__ T* first(unsigned turn) const { return memory + turn % 2 * 2 * kElements; }
  __device__ T* second(unsigned turn) const { return first(turn) + kElements; }
};

/// Elements of shared memory for a block that keeps `kOperands` operands of its own.
template <unsigned kDim, unsigned kSlices, unsigned kOperands>
constexpr std::size_t kSharedElements = kOperands* kOwn<kSlices>* kStride<kDim> + 4 * kOther<kDim>* kStride<kDim>;

template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape s, float scale, const T* qkv, T* out, float* log_sums) {
  constexpr unsigned kRows = kOther<kDim>;
  constexpr unsigned kSlices = kForwardSlices<kDim>;
  constexpr unsigned kBlock = kOwn<kSlices>;
  const BlockPlace at = longest_first<kBlock>(s, true);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp_row = threadIdx.x / kLanes * kSlices * kSlice;  // the warp's first row in the block
  T* const own = dynamic_shared<T>();
  const Tiles<kDim, T> tiles{own + kBlock * kStride<kDim>};
  const auto keys = part_of(s, qkv, at.head, kKey);
  const auto values = part_of(s, qkv, at.head, kValue);
  // End of the keys that this block attends to
  const unsigned end = at.first + kBlock < keys.rows ? at.first + kBlock : keys.rows;
  const unsigned turns = (end + kRows - 1) / kRows;

  copy_rows<kDim, kBlock>(part_of(s, qkv, at.head, kQuery), at.first, own);
  copy_rows<kDim, kRows>(keys, 0, tiles.first(0));
  copy_rows<kDim, kRows>(values, 0, tiles.second(0));
  end_copies();

  const float scale2 = scale * kLog2E;
  const unsigned first = at.first + warp_row;
  const auto row_of = [&](unsigned slice, unsigned half) { return first + slice * kSlice + lane / 4 + half * 8; };
  Left<kDim, kSlices> query;
  Sums<kDim, kSlices> sums = {};
  float largest[kSlices][2];  // maximum of the unscaled products
  float total[kSlices][2] = {};
#pragma unroll
  for (unsigned slice = 0; slice < kSlices; ++slice) largest[slice][0] = largest[slice][1] = -INFINITY;
  for (unsigned turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns) {
      copy_rows<kDim, kRows>(keys, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(values, (turn + 1) * kRows, tiles.second(turn + 1));
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    if (turn == 0) load_left<kDim, kSlices>(own + warp_row * kStride<kDim>, query);
    // Otherwise the warp has no rows, or all keys of this tile come after its rows.
    if (turn * kRows < first + kSlices * kSlice && first < keys.rows) {
      Sums<kRows, kSlices> scores;
      times_rows<kDim, kRows, kSlices>(query, tiles.first(turn), scores);
      if ((turn + 1) * kRows > first + 1) {  // some keys of the tile come after some rows
#pragma unroll
        for (unsigned slice = 0; slice < kSlices; ++slice)
#pragma unroll
          for (unsigned j = 0; j < kRows / 8; ++j)
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
              if (turn * kRows + j * 8 + lane % 4 * 2 + i % 2 > row_of(slice, i / 2)) scores[slice][j][i] = -INFINITY;
      }
#pragma unroll
      for (unsigned slice = 0; slice < kSlices; ++slice)
#pragma unroll
        for (unsigned h = 0; h < 2; ++h) {
          float now = largest[slice][h];
#pragma unroll
          for (unsigned j = 0; j < kRows / 8; ++j)
            now = fmaxf(now, fmaxf(scores[slice][j][2 * h], scores[slice][j][2 * h + 1]));
          now = quad_reduce_max(now);  // finite, because key 0 is in the first tile
          const float before = exp2f((largest[slice][h] - now) * scale2);
          largest[slice][h] = now;
          total[slice][h] *= before;
#pragma unroll
          for (unsigned j = 0; j < kRows / 8; ++j)
#pragma unroll
            for (unsigned i = 2 * h; i < 2 * h + 2; ++i) {
              scores[slice][j][i] = exp2f(fmaf(scores[slice][j][i], scale2, -now * scale2));
              total[slice][h] += scores[slice][j][i];
            }
#pragma unroll
          for (unsigned n = 0; n < kDim / 8; ++n) {
            sums[slice][n][2 * h] *= before;
            sums[slice][n][2 * h + 1] *= before;
          }
        }
      add_rows<kDim, kRows, kSlices>(scores, tiles.second(turn), sums);
    }
    __syncthreads();  // the next copy overwrites the tile
  }
  const auto to = whole_of(s, out, at.head);
#pragma unroll
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    float factor[2];
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const float sum = quad_sum(total[slice][h]);
      factor[h] = 1 / sum;
      if (lane % 4 == 0 && row_of(slice, h) < keys.rows)
        log_sums[std::size_t{at.head} * keys.rows + row_of(slice, h)] =
            (largest[slice][h] * scale2 + log2f(sum)) / kLog2E;
    }
    store_rows<kDim>(sums[slice], factor, first + slice * kSlice, to);
  }
}

/// Computes the gradient of a block of queries, over all keys up to each query.
template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums, const T* d_out,
                          const float* delta, T* d_qkv) {
  constexpr unsigned kRows = kOther<kDim>;
  constexpr unsigned kSlices = kBackwardSlices;
  constexpr unsigned kBlock = kOwn<kSlices>;
  const BlockPlace at = longest_first<kBlock>(s, true);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp_row = threadIdx.x / kLanes * kSlices * kSlice;
  T* const own = dynamic_shared<T>();
  T* const own_d = own + kBlock * kStride<kDim>;
  const Tiles<kDim, T> tiles{own + 2 * kBlock * kStride<kDim>};
  const auto keys = part_of(s, qkv, at.head, kKey);
  const auto values = part_of(s, qkv, at.head, kValue);
  const unsigned end = at.first + kBlock < keys.rows ? at.first + kBlock : keys.rows;
  const unsigned turns = (end + kRows - 1) / kRows;

  copy_rows<kDim, kBlock>(part_of(s, qkv, at.head, kQuery), at.first, own);
  copy_rows<kDim, kBlock>(whole_of(s, d_out, at.head), at.first, own_d);
  copy_rows<kDim, kRows>(keys, 0, tiles.first(0));
  copy_rows<kDim, kRows>(values, 0, tiles.second(0));
  end_copies();

  const unsigned first = at.first + warp_row;
  const auto row_of = [&](unsigned slice, unsigned half) { return first + slice * kSlice + lane / 4 + half * 8; };
  float log_sum[kSlices][2];
  float row_delta[kSlices][2];
#pragma unroll
  for (unsigned slice = 0; slice < kSlices; ++slice)
#pragma unroll
    for (unsigned h = 0; h < 2; ++h) {
      const bool there = row_of(slice, h) < keys.rows;
      const std::size_t index = std::size_t{at.head} * keys.rows + row_of(slice, h);
      log_sum[slice][h] = there ? log_sums[index] * kLog2E : INFINITY;
      row_delta[slice][h] = there ? delta[index] : 0;
    }
  const float scale2 = scale * kLog2E;
  Left<kDim, kSlices> query;
  Left<kDim, kSlices> d;
  Sums<kDim, kSlices> sums = {};
  for (unsigned turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns) {
      copy_rows<kDim, kRows>(keys, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(values, (turn + 1) * kRows, tiles.second(turn + 1));
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    if (turn == 0) {
      load_left<kDim, kSlices>(own + warp_row * kStride<kDim>, query);
      load_left<kDim, kSlices>(own_d + warp_row * kStride<kDim>, d);
    }
    if (turn * kRows < first + kSlices * kSlice && first < keys.rows) {
      Sums<kRows, kSlices> scores;
      Sums<kRows, kSlices> d_scores;
      times_rows<kDim, kRows, kSlices>(query, tiles.first(turn), scores);
      times_rows<kDim, kRows, kSlices>(d, tiles.second(turn), d_scores);
      const bool cut = (turn + 1) * kRows > first + 1;
#pragma unroll
      for (unsigned slice = 0; slice < kSlices; ++slice)
#pragma unroll
        for (unsigned j = 0; j < kRows / 8; ++j)
#pragma unroll
          for (unsigned i = 0; i < 4; ++i) {
            const unsigned key = turn * kRows + j * 8 + lane % 4 * 2 + i % 2;
            const float p = exp2f(fmaf(scores[slice][j][i], scale2, -log_sum[slice][i / 2]));
            const float d_score = scale * p * (d_scores[slice][j][i] - row_delta[slice][i / 2]);
            d_scores[slice][j][i] = cut && key > row_of(slice, i / 2) ? 0.0F : d_score;
          }
      add_rows<kDim, kRows, kSlices>(d_scores, tiles.first(turn), sums);
    }
    __syncthreads();
  }
  const float one[2] = {1, 1};
  const auto to = part_of(s, d_qkv, at.head, kQuery);
#pragma unroll
  for (unsigned slice = 0; slice < kSlices; ++slice) store_rows<kDim>(sums[slice], one, first + slice * kSlice, to);
}

/// Per-row values of a tile of queries, which belong to the rows in shared memory.
template <unsigned kRows>
struct RowTiles {
  float* memory;
  __device__ float* log_sums(unsigned turn) const { return memory + turn % 2 * 2 * kRows; }
  __device__ float* delta(unsigned turn) const { return log_sums(turn) + kRows; }
  /// Starts to copy the values of rows [first, first + kRows); rows behind the last become 0.
  __device__ void copy(unsigned turn, const float* log_sums_from, const float* delta_from, unsigned rows) const {
    const unsigned first = turn * kRows;
    for (unsigned i = threadIdx.x; i < kRows; i += kThreads) {
      const bool there = first + i < rows;
      copy_float_async(log_sums(turn) + i, log_sums_from + (there ? first + i : 0), there);
      copy_float_async(delta(turn) + i, delta_from + (there ? first + i : 0), there);
    }
  }
};

/// Computes the gradients of a block of keys and their values, over all queries from each key on. Products are
/// transposed: a row is a key, a column a query. Queries behind the last are zeros and add nothing.
template <unsigned kDim, class T>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(AttentionShape s, float scale, const T* qkv, const float* log_sums, const T* d_out,
                        const float* delta, T* d_qkv) {
  constexpr unsigned kRows = kOther<kDim>;
  constexpr unsigned kSlices = kBackwardSlices;
  constexpr unsigned kBlock = kOwn<kSlices>;
  const BlockPlace at = longest_first<kBlock>(s, false);
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp_row = threadIdx.x / kLanes * kSlices * kSlice;
  T* const own = dynamic_shared<T>();
  T* const own_values = own + kBlock * kStride<kDim>;
  const Tiles<kDim, T> tiles{own + 2 * kBlock * kStride<kDim>};
  const RowTiles<kRows> rows{reinterpret_cast<float*>(own + kSharedElements<kDim, kSlices, 2>)};
  const auto queries = part_of(s, qkv, at.head, kQuery);
  const auto d = whole_of(s, d_out, at.head);
  log_sums += std::size_t{at.head} * queries.rows;
  delta += std::size_t{at.head} * queries.rows;
  const unsigned begin = at.first / kRows;  // the first tile with a query at or after the first key
  const unsigned end = (queries.rows + kRows - 1) / kRows;

  copy_rows<kDim, kBlock>(part_of(s, qkv, at.head, kKey), at.first, own);
  copy_rows<kDim, kBlock>(part_of(s, qkv, at.head, kValue), at.first, own_values);
  copy_rows<kDim, kRows>(queries, begin * kRows, tiles.first(begin));
  copy_rows<kDim, kRows>(d, begin * kRows, tiles.second(begin));
  rows.copy(begin, log_sums, delta, queries.rows);
  end_copies();

  const float scale2 = scale * kLog2E;
  const unsigned first = at.first + warp_row;
  const auto row_of = [&](unsigned slice, unsigned half) { return first + slice * kSlice + lane / 4 + half * 8; };
  Sums<kDim, kSlices> d_keys = {};
  Sums<kDim, kSlices> d_values = {};
  for (unsigned turn = begin; turn < end; ++turn) {
    if (turn + 1 < end) {
      copy_rows<kDim, kRows>(queries, (turn + 1) * kRows, tiles.first(turn + 1));
      copy_rows<kDim, kRows>(d, (turn + 1) * kRows, tiles.second(turn + 1));
      rows.copy(turn + 1, log_sums, delta, queries.rows);
    }
    end_copies();
    copies_done<1>();
    __syncthreads();
    // Otherwise the warp has no rows, or all queries of this tile come before its rows.
    if ((turn + 1) * kRows > first && first < queries.rows) {
      Sums<kRows, kSlices> scores;
      Sums<kRows, kSlices> d_scores;
      {
        Left<kDim, kSlices> left;
        load_left<kDim, kSlices>(own + warp_row * kStride<kDim>, left);
        times_rows<kDim, kRows, kSlices>(left, tiles.first(turn), scores);
        load_left<kDim, kSlices>(own_values + warp_row * kStride<kDim>, left);
        times_rows<kDim, kRows, kSlices>(left, tiles.second(turn), d_scores);
      }
      const bool cut = turn * kRows < first + kSlices * kSlice;
#pragma unroll
      for (unsigned j = 0; j < kRows / 8; ++j)
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          const unsigned column = j * 8 + lane % 4 * 2 + i;
          const float log_sum = rows.log_sums(turn)[column] * kLog2E;
          const float row_delta = rows.delta(turn)[column];
#pragma unroll
          for (unsigned slice = 0; slice < kSlices; ++slice)
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
              float& p = scores[slice][j][2 * h + i];
              float& d_score = d_scores[slice][j][2 * h + i];
              p = exp2f(fmaf(p, scale2, -log_sum));
              if (cut && row_of(slice, h) > turn * kRows + column) p = 0;
              d_score = scale * p * (d_score - row_delta);
            }
        }
      add_rows<kDim, kRows, kSlices>(scores, tiles.second(turn), d_values);
      add_rows<kDim, kRows, kSlices>(d_scores, tiles.first(turn), d_keys);
    }
    __syncthreads();
  }
  const float one[2] = {1, 1};
  const auto to_keys = part_of(s, d_qkv, at.head, kKey);
  const auto to_values = part_of(s, d_qkv, at.head, kValue);
#pragma unroll
  for (unsigned slice = 0; slice < kSlices; ++slice) {
    store_rows<kDim>(d_keys[slice], one, first + slice * kSlice, to_keys);
    store_rows<kDim>(d_values[slice], one, first + slice * kSlice, to_values);
  }
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}

/// `rows`: rows per block.
template <class Kernel, class... Arguments>
cudaError_t launch_flash(const Queue& queue, const AttentionShape& shape, unsigned rows, std::size_t shared_bytes,
                         Kernel kernel, Arguments... arguments) {
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  const std::size_t blocks = (shape.context + rows - 1) / rows * shape.batch * shape.heads;
  return launch(queue, kernel, static_cast<unsigned>(blocks), kThreads, shared_bytes, shape,
                1 / std::sqrt(static_cast<float>(shape.head_dim)), arguments...);
}

/// Calls body(T{}, head_dim as a constant).
template <class Body>
cudaError_t with_shape(const AttentionShape& shape, DType type, Body body) {
  const auto with_dim = [&](auto element) {
    return shape.head_dim == 64 ? body(element, std::integral_constant<unsigned, 64>{})
                                : body(element, std::integral_constant<unsigned, 128>{});
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
    constexpr unsigned kSlices = kForwardSlices<dim>;
    return launch_flash(queue, shape, kOwn<kSlices>, kSharedElements<dim, kSlices, 1> * sizeof(T),
                        &forward_kernel<dim, T>, as<T>(qkv), reinterpret_cast<T*>(out.data()), log_sums);
  });
}

cudaError_t flash_attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv,
                                     const float* log_sums, ConstElements d_out, const float* delta, Elements d_qkv) {
  return with_shape(shape, qkv.type(), [&](auto type, auto dim) {
    using T = decltype(type);
    T* const gradient = reinterpret_cast<T*>(d_qkv.data());
    constexpr unsigned kRows = kOwn<kBackwardSlices>;
    constexpr std::size_t kShared = kSharedElements<dim, kBackwardSlices, 2> * sizeof(T);
    const cudaError_t error = launch_flash(queue, shape, kRows, kShared, &query_gradient_kernel<dim, T>, as<T>(qkv),
                                           log_sums, as<T>(d_out), delta, gradient);
    if (error != cudaSuccess) return error;
    return launch_flash(queue, shape, kRows, kShared + 4 * kOther<dim> * sizeof(float), &key_gradient_kernel<dim, T>,
                        as<T>(qkv), log_sums, as<T>(d_out), delta, gradient);
  });
}

}  // namespace psring::worker::cuda
