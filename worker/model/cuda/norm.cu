#include <initializer_list>

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

// Layer norm. Where a row is whole packs of 16 bytes and not too long, a team of threads holds it in registers and
// reads it once, and the backward pass is one kernel. Otherwise a warp reads a row several times. Sums over rows have
// two steps, both in order: first over the rows of each chunk, then over the chunks, which depend on the shape alone.

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kRowsAtOnce = kThreads / kWarp;  ///< of a block whose warps handle a row each
constexpr float kEpsilon = 1e-5F;
constexpr std::size_t kChunks = 256;  ///< chunks of rows, at most

std::size_t rows_of_chunk(std::size_t rows) {
  return std::max<std::size_t>(kRowsAtOnce, (rows + kChunks - 1) / kChunks);
}
std::size_t chunks_of(std::size_t rows) { return (rows + rows_of_chunk(rows) - 1) / rows_of_chunk(rows); }

__device__ inline float value_in(std::uint32_t word, unsigned /*i*/, float /*type*/) {
  float value = 0;
  memcpy(&value, &word, sizeof(value));
  return value;
}
__device__ inline float value_in(std::uint32_t word, unsigned i, __nv_bfloat16 /*type*/) {
  return value_in(i % 2 == 0 ? word << 16 : word & 0xffff0000U, 0, 0.0F);
}
__device__ inline float value_in(std::uint32_t word, unsigned i, __half /*type*/) {
  const auto bits = static_cast<std::uint16_t>(word >> 16 * (i % 2));
  __half value;
  memcpy(&value, &bits, sizeof(value));
  return to_float(value);
}

/// The packs of a row that a thread of a team of kTeam threads holds. The team is a warp or the whole block. 16-bit
/// values stay in pairs until they are used: registers are few.
template <class T, unsigned kTeam, unsigned kEach>
struct HeldRow {
  static constexpr unsigned kSize = Pack<T>::kSize;
  std::uint32_t words[kEach][4];

  __device__ static std::size_t column(unsigned pack) {
    return (std::size_t{pack} * kTeam + threadIdx.x % kTeam) * kSize;
  }
  /// Columns behind the last are 0.
  __device__ static HeldRow load(const T* row, std::size_t cols) {
    HeldRow held{};
#pragma unroll
    for (unsigned e = 0; e < kEach; ++e)
      if (column(e) < cols) {
        const int4 bits = *reinterpret_cast<const int4*>(row + column(e));
        memcpy(held.words[e], &bits, sizeof(bits));
      }
    return held;
  }
  __device__ float value(unsigned pack, unsigned i) const {
    return value_in(words[pack][i * sizeof(T) / sizeof(std::uint32_t)], i, T{});
  }
  /// Makes the compiler convert the values again, instead of keeping them as f32 from an earlier use.
  __device__ void forget_values() {
#pragma unroll
    for (auto& pack : words)
#pragma unroll
      for (std::uint32_t& word : pack) asm volatile("" : "+r"(word));
  }
  /// Calls body(pack, i) for each of the thread's columns.
  template <class Body>
  __device__ static void for_held(std::size_t cols, Body body) {
#pragma unroll
    for (unsigned e = 0; e < kEach; ++e)
      if (column(e) < cols)
#pragma unroll
        for (unsigned i = 0; i < kSize; ++i) body(e, i);
  }
  /// Writes f(pack, i) to each of the thread's columns.
  template <class F>
  __device__ static void store(T* row, std::size_t cols, F f) {
#pragma unroll
    for (unsigned e = 0; e < kEach; ++e) {
      if (column(e) >= cols) continue;
      Pack<T> pack;
#pragma unroll
      for (unsigned i = 0; i < kSize; ++i) pack.values[i] = from_float<T>(f(e, i));
      pack.store(row + column(e));
    }
  }
};

/// Sums over a team. `room`: see block_reduce.
template <unsigned kTeam>
__device__ float team_sum(float value, float* room) {
  if constexpr (kTeam == kWarp)
    return warp_sum(value);
  else
    return block_reduce(value, 0.0F, room, [](float a, float b) { return a + b; });
}

template <class T, unsigned kTeam, unsigned kEach>
__global__ void __launch_bounds__(kThreads, 2)
    held_norm_kernel(std::size_t rows, std::size_t cols, const T* x, const T* weight, const T* bias, float* saved, T* y,
                     bool again) {
  using Row = HeldRow<T, kTeam, kEach>;
  constexpr unsigned kTeams = kThreads / kTeam;
  __shared__ float rooms[2][kMostWarps];
  const Row weights = Row::load(weight, cols);
  const Row biases = Row::load(bias, cols);
  for (std::size_t r = std::size_t{blockIdx.x} * kTeams + threadIdx.x / kTeam; r < rows;
       r += std::size_t{gridDim.x} * kTeams) {
    const Row row = Row::load(x + r * cols, cols);
    float mean = 0;
    float scale = 0;
    if (again) {
      mean = saved[2 * r];
      scale = saved[2 * r + 1];
    } else {
      float sum = 0;
      Row::for_held(cols, [&](unsigned e, unsigned i) { sum += row.value(e, i); });
      mean = team_sum<kTeam>(sum, rooms[0]) / static_cast<float>(cols);
      float squares = 0;
      Row::for_held(cols,
                    [&](unsigned e, unsigned i) { squares += (row.value(e, i) - mean) * (row.value(e, i) - mean); });
      scale = 1.0F / sqrtf(team_sum<kTeam>(squares, rooms[1]) / static_cast<float>(cols) + kEpsilon);
      if (threadIdx.x % kTeam == 0) {
        saved[2 * r] = mean;
        saved[2 * r + 1] = scale;
      }
    }
    Row::store(y + r * cols, cols, [&](unsigned e, unsigned i) {
      return (row.value(e, i) - mean) * scale * weights.value(e, i) + biases.value(e, i);
    });
    if (kTeam != kWarp && !again) __syncthreads();  // the next row's sums use the rooms again
  }
}

/// A block handles a chunk of rows. With g = dy * weight and z the normalised x:
///   dx = scale * (g - mean(g) - z * mean(g z)) + residual, unless dx is null;
///   sums: the sums of dy over the chunk's rows, [chunks, cols], then the sums of dy * z; nothing if null.
template <class T, unsigned kTeam, unsigned kEach>
__global__ void __launch_bounds__(kThreads, 2)
    held_norm_backward_kernel(std::size_t rows, std::size_t cols, std::size_t rows_of_chunk, const T* x,
                              const T* weight, const float* saved, const T* dy, const T* residual, T* dx, float* sums) {
  using Row = HeldRow<T, kTeam, kEach>;
  constexpr unsigned kTeams = kThreads / kTeam;
  __shared__ float rooms[2][kMostWarps];
  Row weights = Row::load(weight, cols);
  float sum[kEach][Row::kSize] = {};
  float sum_z[kEach][Row::kSize] = {};
  const std::size_t begin = blockIdx.x * rows_of_chunk;
  const std::size_t end = begin + rows_of_chunk < rows ? begin + rows_of_chunk : rows;
  for (std::size_t r = begin + threadIdx.x / kTeam; r < end; r += kTeams) {
    Row row = Row::load(x + r * cols, cols);
    Row d = Row::load(dy + r * cols, cols);
    Row kept{};
    if (residual != nullptr) kept = Row::load(residual + r * cols, cols);
    const float mean = saved[2 * r];
    const float scale = saved[2 * r + 1];
    float sum_g = 0;
    float sum_gz = 0;
    weights.forget_values();
    Row::for_held(cols, [&](unsigned e, unsigned i) {
      const float z = (row.value(e, i) - mean) * scale;
      const float g = d.value(e, i) * weights.value(e, i);
      sum_g += g;
      sum_gz += g * z;
      sum[e][i] += d.value(e, i);
      sum_z[e][i] += d.value(e, i) * z;
    });
    if (dx == nullptr) continue;
    const float mean_g = team_sum<kTeam>(sum_g, rooms[0]) / static_cast<float>(cols);
    const float mean_gz = team_sum<kTeam>(sum_gz, rooms[1]) / static_cast<float>(cols);
    row.forget_values();
    d.forget_values();
    Row::store(dx + r * cols, cols, [&](unsigned e, unsigned i) {
      const float z = (row.value(e, i) - mean) * scale;
      const float into = scale * (d.value(e, i) * weights.value(e, i) - mean_g - z * mean_gz);
      return residual == nullptr ? into : kept.value(e, i) + into;
    });
    if (kTeam != kWarp) __syncthreads();  // the next row's sums use the rooms again
  }
  if (sums == nullptr) return;
  // The teams' sums are added in order. Place (e, i, thread) of a team lies at (e * kSize + i) * kTeam + thread.
  __shared__ float all[kTeams == 1 ? 1 : 2][kTeams == 1 ? 1 : kTeam * kEach * Row::kSize];
  float* const plain = sums + blockIdx.x * cols;
  float* const times = sums + (std::size_t{gridDim.x} + blockIdx.x) * cols;
  if constexpr (kTeams == 1) {
    Row::for_held(cols, [&](unsigned e, unsigned i) {
      plain[Row::column(e) + i] = sum[e][i];
      times[Row::column(e) + i] = sum_z[e][i];
    });
  } else {
    for (unsigned team = 0; team < kTeams; ++team) {
      if (threadIdx.x / kTeam == team)
        Row::for_held(cols, [&](unsigned e, unsigned i) {
          const unsigned at = (e * Row::kSize + i) * kTeam + threadIdx.x % kTeam;
          all[0][at] = team == 0 ? sum[e][i] : all[0][at] + sum[e][i];
          all[1][at] = team == 0 ? sum_z[e][i] : all[1][at] + sum_z[e][i];
        });
      __syncthreads();
    }
    for (unsigned j = threadIdx.x; j < cols; j += kThreads) {
      const unsigned at = (j / (kTeam * Row::kSize) * Row::kSize + j % Row::kSize) * kTeam + j / Row::kSize % kTeam;
      plain[j] = all[0][at];
      times[j] = all[1][at];
    }
  }
}

/// For any row: see held_norm_kernel.
template <class T>
__global__ void norm_kernel(std::size_t rows, std::size_t cols, const T* x, const T* weight, const T* bias,
                            float* saved, T* y, bool again) {
  const unsigned lane = threadIdx.x % kWarp;
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
      for (std::size_t j = lane; j < cols; j += kWarp) sum += to_float(row[j]);
      mean = warp_sum(sum) / static_cast<float>(cols);
      float squares = 0;
      for (std::size_t j = lane; j < cols; j += kWarp) squares += (to_float(row[j]) - mean) * (to_float(row[j]) - mean);
      scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(cols) + kEpsilon);
      if (lane == 0) {
        saved[2 * r] = mean;
        saved[2 * r + 1] = scale;
      }
    }
    for (std::size_t j = lane; j < cols; j += kWarp)
      y[r * cols + j] = from_float<T>((to_float(row[j]) - mean) * scale * to_float(weight[j]) + to_float(bias[j]));
  }
}

/// For any row: dx as in held_norm_backward_kernel.
template <class T>
__global__ void norm_inputs_kernel(std::size_t rows, std::size_t cols, const T* x, const T* weight, const float* saved,
                                   const T* dy, const T* residual, T* dx) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t stride = std::size_t{gridDim.x} * kRowsAtOnce;
  for (std::size_t r = std::size_t{blockIdx.x} * kRowsAtOnce + threadIdx.x / kWarp; r < rows; r += stride) {
    const std::size_t begin = r * cols;
    const float mean = saved[2 * r];
    const float scale = saved[2 * r + 1];
    const auto g = [&](std::size_t j) { return to_float(dy[begin + j]) * to_float(weight[j]); };
    const auto z = [&](std::size_t j) { return (to_float(x[begin + j]) - mean) * scale; };
    float sum_g = 0;
    float sum_gz = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      sum_g += g(j);
      sum_gz += g(j) * z(j);
    }
    const float mean_g = warp_sum(sum_g) / static_cast<float>(cols);
    const float mean_gz = warp_sum(sum_gz) / static_cast<float>(cols);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      const float kept = residual == nullptr ? 0.0F : to_float(residual[begin + j]);
      dx[begin + j] = from_float<T>(kept + scale * (g(j) - mean_g - z(j) * mean_gz));
    }
  }
}

/// For any row: sums as in held_norm_backward_kernel. A thread sums a column of a chunk.
template <class T>
__global__ void norm_sums_kernel(std::size_t rows, std::size_t cols, std::size_t rows_of_chunk, const T* x,
                                 const float* saved, const T* dy, float* sums) {
  const std::size_t j = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (j >= cols) return;
  const std::size_t begin = blockIdx.y * rows_of_chunk;
  const std::size_t end = begin + rows_of_chunk < rows ? begin + rows_of_chunk : rows;
  float sum = 0;
  float sum_z = 0;
  for (std::size_t r = begin; r < end; ++r) {
    const float d = to_float(dy[r * cols + j]);
    sum += d;
    sum_z += d * ((to_float(x[r * cols + j]) - saved[2 * r]) * saved[2 * r + 1]);
  }
  sums[blockIdx.y * cols + j] = sum;
  sums[(std::size_t{gridDim.y} + blockIdx.y) * cols + j] = sum_z;
}

template <class T>
const T* as(ConstElements elements) {
  return reinterpret_cast<const T*>(elements.data());
}
template <class T>
T* as(Elements elements) {
  return reinterpret_cast<T*>(elements.data());
}

/// Calls body(team, each) with constants: the threads of a team that holds a row of `packs`, and the number of packs in
/// the registers of a thread. Returns false for rows that are too long.
template <class Body>
bool with_team(std::size_t packs, Body body) {
  const auto call = [&]<unsigned kTeam, unsigned kEach>() {
    body(std::integral_constant<unsigned, kTeam>{}, std::integral_constant<unsigned, kEach>{});
    return true;
  };
  if (packs <= kWarp) return call.template operator()<kWarp, 1>();
  if (packs <= 2 * kWarp) return call.template operator()<kWarp, 2>();
  if (packs <= 3 * kWarp) return call.template operator()<kWarp, 3>();
  if (packs <= kThreads) return call.template operator()<kThreads, 1>();
  if (packs <= 2 * kThreads) return call.template operator()<kThreads, 2>();
  return false;
}

/// The same for rows that are whole packs in memory; false otherwise.
template <class T, class Body>
bool with_held_rows(Rows shape, std::initializer_list<const void*> inputs, Body body) {
  if (shape.cols % Pack<T>::kSize != 0) return false;
  for (const void* const input : inputs)
    if (!aligned(input)) return false;
  return with_team(shape.cols / Pack<T>::kSize, body);
}

}  // namespace

std::size_t norm_scratch(Rows shape) { return 2 * chunks_of(shape.rows) * shape.cols; }

cudaError_t layer_norm(const Queue& queue, Rows shape, ConstElements x, ConstElements weight, ConstElements bias,
                       float* saved, Elements y, bool again) {
  cudaError_t error = kNoKernel;
  with_type(x.type(), [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto kernel, unsigned threads_of_row) {
      error = launch(queue, kernel, blocks_for(queue, shape.rows * threads_of_row, kThreads), kThreads, 0, shape.rows,
                     shape.cols, as<T>(x), as<T>(weight), as<T>(bias), saved, as<T>(y), again);
    };
    const bool held = with_held_rows<T>(shape, {x.data(), weight.data(), bias.data(), y.data()},
                                        [&](auto team, auto each) { run(&held_norm_kernel<T, team, each>, team); });
    if (!held) run(&norm_kernel<T>, kWarp);
  });
  return error;
}

cudaError_t layer_norm_backward(const Queue& queue, Rows shape, ConstElements x, ConstElements weight,
                                const float* saved, ConstElements dy, ConstElements residual, Elements dx,
                                const TensorKernels::NormGradients& gradients, float* scratch) {
  cudaError_t error = kNoKernel;
  float* const sums = gradients.weight.empty() ? nullptr : scratch;
  const auto chunks = static_cast<unsigned>(chunks_of(shape.rows));
  with_type(x.type(), [&](auto type) {
    using T = decltype(type);
    const std::size_t chunk = rows_of_chunk(shape.rows);
    const T* const added = residual.empty() ? nullptr : as<T>(residual);
    const bool held = with_held_rows<T>(
        shape, {x.data(), weight.data(), dy.data(), residual.data(), dx.data()}, [&](auto team, auto each) {
          error =
              launch(queue, &held_norm_backward_kernel<T, team, each>, chunks, kThreads, 0, shape.rows, shape.cols,
                     chunk, as<T>(x), as<T>(weight), saved, as<T>(dy), added, dx.empty() ? nullptr : as<T>(dx), sums);
        });
    if (held) return;
    error = cudaSuccess;
    if (sums != nullptr)
      error = launch(queue, &norm_sums_kernel<T>,
                     dim3(static_cast<unsigned>((shape.cols + kThreads - 1) / kThreads), chunks), kThreads, 0,
                     shape.rows, shape.cols, chunk, as<T>(x), saved, as<T>(dy), sums);
    if (error == cudaSuccess && !dx.empty())
      error = launch(queue, &norm_inputs_kernel<T>, blocks_for(queue, shape.rows * kWarp, kThreads), kThreads, 0,
                     shape.rows, shape.cols, as<T>(x), as<T>(weight), saved, as<T>(dy), added, as<T>(dx));
  });
  if (error != cudaSuccess || sums == nullptr) return error;
  error = sum_chunks(queue, {chunks, shape.cols}, sums, gradients.bias_beta, gradients.bias);
  if (error != cudaSuccess) return error;
  return sum_chunks(queue, {chunks, shape.cols}, sums + chunks * shape.cols, gradients.weight_beta, gradients.weight);
}

}  // namespace psring::worker::cuda
