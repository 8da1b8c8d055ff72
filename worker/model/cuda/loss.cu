#include <psring/common/device/cuda/dynamic_shared.cuh>
#include <psring/common/device/cuda/instructions.cuh>
#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

// Losses, with one block per row. The gradient replaces the logits. The logits stay in shared memory if a row fits, and
// are read twice otherwise. The rows' losses are then summed in f64, in a fixed order.

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr std::size_t kMostShared = std::size_t{99} << 10;  ///< of a block, on every supported GPU
constexpr std::size_t kStaticShared = 512;                  ///< of the kernels' static shared memory, at most
constexpr float kLog2E = 1.4426950408889634F;

/// A part of a row: its maximum, the maximum's first position, and the sum of e^(x - largest).
struct Part {
  float largest;
  float sum;
  unsigned place;

  /// Returns e^(x - largest), or 0 for x = -infinity, even if -infinity is the maximum.
  __device__ float power(float x) const { return power_of_2((x - (largest == -INFINITY ? 0.0F : largest)) * kLog2E); }
  /// Adds the numbers at positions from `begin` on, which come after all numbers added so far. NaN makes the sum NaN.
  template <unsigned kSize>
  __device__ void take(std::size_t begin, const float (&x)[kSize]) {
    float most = x[0];
    for (unsigned i = 1; i < kSize; ++i) most = fmaxf(most, x[i]);
    if (most > largest) {
      sum *= power_of_2((largest - most) * kLog2E);
      largest = most;
#pragma unroll
      for (unsigned i = kSize; i > 0; --i)
        if (x[i - 1] == most) place = static_cast<unsigned>(begin) + i - 1;
    }
    for (const float each : x) sum += power(each);
  }
};

__device__ Part shuffled(Part part, int bits) {
  return {__shfl_xor_sync(kAllLanes, part.largest, bits), __shfl_xor_sync(kAllLanes, part.sum, bits),
          __shfl_xor_sync(kAllLanes, part.place, bits)};
}
__device__ Part combine(Part a, Part b) {
  if (b.largest > a.largest || (b.largest == a.largest && b.place < a.place)) {
    const Part c = a;
    a = b;
    b = c;
  }
  if (b.sum != 0) a.sum += b.sum * expf(b.largest - a.largest);  // also if NaN
  return a;
}
__device__ Part block_combine(Part part, Part* room) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) part = combine(part, shuffled(part, bits));
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = part;
  __syncthreads();
  part = room[0];
  for (unsigned w = 1; w < kThreads / kWarp; ++w) part = combine(part, room[w]);
  return part;
}

/// Computes the loss of log softmax for each row, and 1 if the target is the first maximum; see worker/model/loss.h.
/// `kept`: the row lies in shared memory, and each thread reads the elements that it copied. REQUIRES: `wide`.
template <class T>
__global__ void cross_entropy_kernel(std::size_t cols, bool wide, bool kept, const std::int32_t* targets, float scale,
                                     T* y, float* losses) {
  constexpr unsigned kSize = Pack<T>::kSize;
  __shared__ Part room[kThreads / kWarp];
  T* const row = y + blockIdx.x * cols;
  T* const copy = kept ? dynamic_shared<T>() : row;
  if (kept) {  // all loads in flight at once
    for (std::size_t j = std::size_t{threadIdx.x} * kSize; j < cols; j += kThreads * kSize)
      copy_async(copy + j, row + j);
    end_copies();
    copies_done<0>();
  }
  const auto target = static_cast<unsigned>(targets[blockIdx.x]);
  const float target_logit = to_float(row[target]);
  Part part{-INFINITY, 0, 0xffffffffU};
  if (wide) {
    for (std::size_t j = std::size_t{threadIdx.x} * kSize; j < cols; j += kThreads * kSize) {
      const auto pack = Pack<T>::load(copy + j);
      float x[kSize];
      for (unsigned i = 0; i < kSize; ++i) x[i] = to_float(pack.values[i]);
      part.take(j, x);
    }
  } else {
    for (std::size_t j = threadIdx.x; j < cols; j += kThreads) {
      const float x[1] = {to_float(row[j])};
      part.take(j, x);
    }
  }
  part = block_combine(part, room);
  if (threadIdx.x == 0) {
    losses[2 * blockIdx.x] = logf(part.sum) + (part.largest - target_logit);
    losses[2 * blockIdx.x + 1] = part.place == target ? 1.0F : 0.0F;
  }
  if (scale == 0) return;
  __syncthreads();  // all threads have read the target's logit
  const float share = scale / part.sum;
  const auto gradient = [&](float x) { return part.power(x) * share; };
  if (wide) {
    for (std::size_t j = std::size_t{threadIdx.x} * kSize; j < cols; j += kThreads * kSize) {
      auto pack = Pack<T>::load(copy + j);
      for (unsigned i = 0; i < kSize; ++i) pack.values[i] = from_float<T>(gradient(to_float(pack.values[i])));
      pack.store(row + j);
    }
  } else {
    for (std::size_t j = threadIdx.x; j < cols; j += kThreads) row[j] = from_float<T>(gradient(to_float(row[j])));
  }
  // The thread that wrote the target's gradient corrects it.
  if ((wide ? target / kSize : target) % kThreads == threadIdx.x)
    row[target] = from_float<T>(gradient(target_logit) - scale);
}

/// Computes the mean square of each row.
template <class T>
__global__ void mean_square_kernel(std::size_t cols, float scale, T* y, float* losses) {
  __shared__ float room[kMostWarps];
  T* const row = y + blockIdx.x * cols;
  float sum = 0;
  for (std::size_t j = threadIdx.x; j < cols; j += kThreads) {
    const float x = to_float(row[j]);
    sum += x * x;
    if (scale != 0) row[j] = from_float<T>(2 * scale / static_cast<float>(cols) * x);
  }
  sum = block_reduce(sum, 0.0F, room, [](float a, float b) { return a + b; });
  if (threadIdx.x != 0) return;
  losses[2 * blockIdx.x] = sum / static_cast<float>(cols);
  losses[2 * blockIdx.x + 1] = 0;
}

/// Runs as one block. Each thread sums every kThreads-th row; then the threads' sums are added.
__global__ void total_kernel(std::size_t rows, const float* losses, LossSums* sums) {
  __shared__ double room[kMostWarps];
  double loss = 0;
  double correct = 0;
  for (std::size_t r = threadIdx.x; r < rows; r += kThreads) {
    loss += static_cast<double>(losses[2 * r]);
    correct += static_cast<double>(losses[2 * r + 1]);
  }
  const auto add = [](double a, double b) { return a + b; };
  loss = block_reduce(loss, 0.0, room, add);
  __syncthreads();
  correct = block_reduce(correct, 0.0, room, add);
  if (threadIdx.x != 0) return;
  sums->loss = loss;
  sums->correct = static_cast<std::uint64_t>(correct);
}

}  // namespace

cudaError_t loss(const Queue& queue, Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums,
                 float* scratch) {
  cudaError_t error = kNoKernel;
  const auto rows = static_cast<unsigned>(shape.rows);
  with_type(y.type(), [&](auto type) {
    using T = decltype(type);
    T* const values = reinterpret_cast<T*>(y.data());
    const bool wide = shape.cols % Pack<T>::kSize == 0 && aligned(values);
    if (targets == nullptr) {
      error = launch(queue, &mean_square_kernel<T>, rows, kThreads, 0, shape.cols, scale, values, scratch);
      return;
    }
    const std::size_t bytes = shape.cols * sizeof(T);
    const bool kept = wide && scale != 0 && bytes <= kMostShared - kStaticShared;
    error = cudaFuncSetAttribute(&cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kMostShared - kStaticShared));
    if (error == cudaSuccess)
      error = launch(queue, &cross_entropy_kernel<T>, rows, kThreads, kept ? bytes : 0, shape.cols, wide, kept, targets,
                     scale, values, scratch);
  });
  return error != cudaSuccess ? error : launch(queue, &total_kernel, 1, kThreads, 0, shape.rows, scratch, sums);
}

}  // namespace psring::worker::cuda
