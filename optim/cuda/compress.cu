#include <algorithm>
#include <cmath>

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/optim/codec/codes.h>
#include <psring/optim/cuda/compress.h>

// Compiled without fused multiply-add, so that the bits equal the host's.

namespace psring::optim::cuda {
namespace {

using psring::cuda::blocks_for;
using psring::cuda::kWarp;
using psring::cuda::launch;
using psring::cuda::Queue;
using Four = psring::cuda::Pack<float>;

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;

const float* floats(ConstElements elements) { return reinterpret_cast<const float*>(elements.data()); }
float* floats(Elements elements) { return reinterpret_cast<float*>(elements.data()); }

__device__ std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

__device__ std::size_t thread_of_grid() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::size_t threads_of_grid() { return std::size_t{gridDim.x} * blockDim.x; }

/// Loads at[i, i + 4), with zeros beyond the end.
__device__ Four load_four(const float* at, std::size_t i, std::size_t size) {
  if (i + Four::kSize <= size) return Four::load(at + i);
  Four four{};
#pragma unroll
  for (unsigned j = 0; j < Four::kSize; ++j)
    if (i + j < size) four.values[j] = at[i + j];
  return four;
}
__device__ void store_four(const Four& four, float* at, std::size_t i, std::size_t size) {
  if (i + Four::kSize <= size) return four.store(at + i);
#pragma unroll
  for (unsigned j = 0; j < Four::kSize; ++j)
    if (i + j < size) at[i + j] = four.values[j];
}

/// Stores the bytes of a word that lie before the end. `at` is a multiple of 4.
__device__ void store_word(std::uint32_t word, std::uint8_t* at, std::size_t i, std::size_t size) {
  if (i + 4 <= size)
    *reinterpret_cast<std::uint32_t*>(at + i) = word;
  else
    for (; i < size; ++i, word >>= 8) at[i] = static_cast<std::uint8_t>(word);
}

// ------------------------------------------------------------------------------------------------ int8

/// One warp encodes one block.
__global__ void int8_encode_kernel(std::size_t size, const float* values, float* scales, std::uint8_t* codes) {
  constexpr unsigned kRounds = kInt8Block / (kWarp * Four::kSize);
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t blocks = blocks_of(size, kInt8Block);
  for (std::size_t block = thread_of_grid() / kWarp; block < blocks; block += threads_of_grid() / kWarp) {
    Four fours[kRounds];
    float most = 0;
    int finite = 1;
    for (unsigned round = 0; round < kRounds; ++round) {
      fours[round] = load_four(values, block * kInt8Block + (round * kWarp + lane) * Four::kSize, size);
      for (const float value : fours[round].values) {
        most = fmaxf(most, fabsf(value));
        finite &= value - value == 0 ? 1 : 0;
      }
    }
    most = psring::cuda::warp_max(most);
    finite = psring::cuda::warp_reduce(finite, [](int a, int b) { return a & b; });
    const Int8Scale scale = int8_scale(most, finite != 0);
    if (lane == 0) scales[block] = scale.scale;
    for (unsigned round = 0; round < kRounds; ++round) {
      std::uint32_t word = 0;
      for (unsigned j = 0; j < Four::kSize; ++j)
        word |= std::uint32_t{static_cast<std::uint8_t>(int8_code(scale, fours[round].values[j]))} << 8 * j;
      store_word(word, codes, block * kInt8Block + (round * kWarp + lane) * Four::kSize, size);
    }
  }
}

__global__ void int8_decode_kernel(std::size_t size, const float* scales, const std::uint8_t* codes, float* out) {
  for (std::size_t i = thread_of_grid() * Four::kSize; i < size; i += threads_of_grid() * Four::kSize) {
    const float scale = scales[i / kInt8Block];
    std::uint32_t word = 0;
    if (i + Four::kSize <= size)
      word = *reinterpret_cast<const std::uint32_t*>(codes + i);
    else
      for (unsigned j = 0; i + j < size; ++j) word |= std::uint32_t{codes[i + j]} << 8 * j;
    Four four{};
    for (unsigned j = 0; j < Four::kSize; ++j)
      four.values[j] = scale * static_cast<float>(static_cast<std::int8_t>(word >> 8 * j));
    store_four(four, out, i, size);
  }
}

// ------------------------------------------------------------------------------------------------ sign

/// One warp encodes one block. The lower half of the warp adds both halves of each 32 elements, in the host's order.
__global__ void sign_encode_kernel(std::size_t size, const float* values, float* scales, std::uint8_t* bits) {
  static_assert(2 * kSignLanes == kWarp && kSignBlock == std::size_t{kWarp} * kWarp);
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t blocks = blocks_of(size, kSignBlock);
  for (std::size_t block = thread_of_grid() / kWarp; block < blocks; block += threads_of_grid() / kWarp) {
    const std::size_t begin = block * kSignBlock;
    float row[kWarp];
#pragma unroll
    for (unsigned r = 0; r < kWarp; ++r) {
      const std::size_t i = begin + r * kWarp + lane;
      row[r] = i < size ? values[i] : 0;
    }
    float sum = 0;
    std::uint32_t word = 0;  // lane r keeps the signs of row r
#pragma unroll
    for (unsigned r = 0; r < kWarp; ++r) {
      const std::uint32_t signs = __ballot_sync(psring::cuda::kAllLanes, bits_of(row[r]) >> 31 != 0);
      if (lane == r) word = signs;
      const float above = __shfl_xor_sync(psring::cuda::kAllLanes, row[r], kSignLanes);
      sum += fabsf(row[r]);
      sum += fabsf(above);
    }
    float all = 0;
    for (unsigned l = 0; l < kSignLanes; ++l) all += __shfl_sync(psring::cuda::kAllLanes, sum, l);
    if (lane == 0) scales[block] = mean_magnitude(values + begin, min(kSignBlock, size - begin), all);
    store_word(word, bits, begin / 8 + lane * 4, blocks_of(size, 8));
  }
}

__global__ void sign_decode_kernel(std::size_t size, const float* scales, const std::uint8_t* bits, float* out) {
  for (std::size_t i = thread_of_grid() * Four::kSize; i < size; i += threads_of_grid() * Four::kSize) {
    const std::uint32_t scale = bits_of(scales[i / kSignBlock]);
    const std::uint32_t signs = std::uint32_t{bits[i / 8]} >> i % 8;
    Four four{};
    for (unsigned j = 0; j < Four::kSize; ++j) {
      const std::uint32_t value = scale ^ (signs >> j & 1) << 31;
      memcpy(&four.values[j], &value, sizeof(value));
    }
    store_four(four, out, i, size);
  }
}

// ------------------------------------------------------------------------------------------------ top-k

constexpr unsigned kTile = kThreads * Four::kSize;  ///< elements that a thread block reads at once

/// Magnitudes are 31 bits, and as whole numbers keep their order.
constexpr unsigned kDigits[] = {11, 10, 10};

__device__ std::uint32_t magnitude(float value) { return bits_of(value) & 0x7fffffff; }

/// Calls body(four, i) for the elements [i, i + 4) of each thread.
template <class Body>
__device__ void for_each_four(const float* values, std::size_t begin, std::size_t end, std::size_t size,
                              const Body& body) {
  for (std::size_t tile = begin; tile < end; tile += kTile) {
    const std::size_t i = tile + std::size_t{threadIdx.x} * Four::kSize;
    body(i < size ? load_four(values, i, size) : Four{}, i);
  }
}

/// Counts the next digit of all magnitudes that begin with the known digits. `shift`: the next digit's lowest bit.
__global__ void histogram_kernel(std::size_t size, std::size_t chunk, const float* values, unsigned shift,
                                 unsigned bits, TopKScratch* scratch) {
  __shared__ std::uint32_t bins[kTopKBins];
  for (unsigned b = threadIdx.x; b < 1U << bits; b += kThreads) bins[b] = 0;
  __syncthreads();
  const std::uint32_t prefix = shift + bits < 31 ? scratch->prefix : 0;
  const std::size_t begin = blockIdx.x * chunk;
  for_each_four(values, begin, min(begin + chunk, size), size, [&](const Four& four, std::size_t i) {
    for (unsigned j = 0; j < Four::kSize && i + j < size; ++j) {
      const std::uint32_t level = magnitude(four.values[j]);
      if (level >> (shift + bits) == prefix) atomicAdd(&bins[level >> shift & ((1U << bits) - 1)], 1U);
    }
  });
  __syncthreads();
  for (unsigned b = threadIdx.x; b < 1U << bits; b += kThreads)
    if (bins[b] > 0) atomicAdd(&scratch->bins[b], bins[b]);
}

/// Finds the next digit of the threshold, in one thread block; digits come largest first. `kept`: elements to keep.
__global__ void choose_kernel(unsigned bits, bool first, std::uint32_t kept, TopKScratch* scratch) {
  __shared__ std::uint32_t room[kWarps];
  const std::uint32_t left = first ? kept : scratch->left;
  const std::uint32_t prefix = first ? 0 : scratch->prefix;
  const unsigned each = (1U << bits) / kThreads;
  std::uint32_t own = 0;
  const auto bin = [&](unsigned k) { return (1U << bits) - 1 - (threadIdx.x * each + k); };
  for (unsigned k = 0; k < each; ++k) own += scratch->bins[bin(k)];
  std::uint32_t all = 0;
  std::uint32_t above = psring::cuda::block_sum_before(own, room, all);
  for (unsigned k = 0; k < each; ++k) {
    const std::uint32_t here = scratch->bins[bin(k)];
    scratch->bins[bin(k)] = 0;
    if (above < left && left <= above + here) {
      scratch->prefix = prefix << bits | bin(k);
      scratch->left = left - above;
    }
    above += here;
  }
}

/// Two counts: magnitudes above the threshold in the lower half, equal ones in the upper half.
using Found = std::uint64_t;
constexpr Found kAbove = 1;
constexpr Found kEqual = Found{1} << 32;

__device__ Found found(const Four& four, std::size_t i, std::size_t size, std::uint32_t threshold) {
  Found sum = 0;
  for (unsigned j = 0; j < Four::kSize && i + j < size; ++j) {
    const std::uint32_t level = magnitude(four.values[j]);
    sum += level > threshold ? kAbove : level == threshold ? kEqual : 0;
  }
  return sum;
}

__global__ void count_kernel(std::size_t size, std::size_t chunk, const float* values, TopKScratch* scratch) {
  __shared__ Found room[kWarps];
  const std::uint32_t threshold = scratch->prefix;
  const std::size_t begin = blockIdx.x * chunk;
  Found sum = 0;
  for_each_four(values, begin, min(begin + chunk, size), size,
                [&](const Four& four, std::size_t i) { sum += found(four, i, size, threshold); });
  sum = psring::cuda::block_reduce(sum, Found{0}, room, [](Found a, Found b) { return a + b; });
  if (threadIdx.x == 0) scratch->counts[blockIdx.x] = sum;
}

/// Replaces the count of each chunk by the sum of the chunks before it, in one thread block.
__global__ void sum_kernel(unsigned chunks, TopKScratch* scratch) {
  __shared__ Found room[kWarps];
  constexpr unsigned kEach = kTopKChunks / kThreads;
  Found own = 0;
  const auto count = [&](unsigned k) { return threadIdx.x * kEach + k; };
  for (unsigned k = 0; k < kEach; ++k) own += count(k) < chunks ? scratch->counts[count(k)] : 0;
  Found all = 0;
  Found before = psring::cuda::block_sum_before(own, room, all);
  for (unsigned k = 0; k < kEach && count(k) < chunks; ++k) {
    const Found here = scratch->counts[count(k)];
    scratch->counts[count(k)] = before;
    before += here;
  }
}

__global__ void compact_kernel(std::size_t size, std::size_t chunk, const float* values, const TopKScratch* scratch,
                               std::uint32_t* out) {
  __shared__ Found room[kWarps];
  const std::uint32_t threshold = scratch->prefix;
  const std::uint32_t ties = scratch->left;
  const std::size_t begin = blockIdx.x * chunk;
  Found before = scratch->counts[blockIdx.x];
  for_each_four(values, begin, min(begin + chunk, size), size, [&](const Four& four, std::size_t i) {
    Found all = 0;
    const Found in_tile = psring::cuda::block_sum_before(found(four, i, size, threshold), room, all);
    auto above = static_cast<std::uint32_t>(before + in_tile);
    auto equal = static_cast<std::uint32_t>((before + in_tile) / kEqual);
#pragma unroll
    for (unsigned j = 0; j < Four::kSize; ++j) {
      if (i + j >= size) break;
      const std::uint32_t level = magnitude(four.values[j]);
      if (level > threshold || (level == threshold && equal < ties)) {
        const std::size_t at = std::size_t{above} + min(equal, ties);
        out[2 * at] = static_cast<std::uint32_t>(i + j);
        out[2 * at + 1] = bits_of(four.values[j]);
      }
      above += level > threshold ? 1 : 0;
      equal += level == threshold ? 1 : 0;
    }
    before += all;
  });
}

__global__ void top_k_decode_kernel(std::size_t size, const std::uint32_t* in, std::size_t kept, std::uint32_t* out) {
  for (std::size_t i = thread_of_grid(); i < kept; i += threads_of_grid())
    if (in[2 * i] < size) out[in[2 * i]] = in[2 * i + 1];
}

// ------------------------------------------------------------------------------------------------ random-k

__global__ void random_k_encode_kernel(std::size_t size, const float* values, std::size_t kept, CounterRng places,
                                       std::size_t begin, float factor, float* out) {
  for (std::size_t i = thread_of_grid(); i < kept; i += threads_of_grid())
    out[i] = factor * values[random_place(places, begin, i, size, kept)];
}
/// Writes NaN as the first value if an element is not finite. Several threads may write at once: all write the same.
__global__ void random_k_mark_kernel(std::size_t size, const float* values, float* out) {
  bool finite = true;
  for (std::size_t i = thread_of_grid() * Four::kSize; i < size; i += threads_of_grid() * Four::kSize)
    for (const float value : load_four(values, i, size).values) finite = finite && is_finite(value);
  if (!finite) out[0] = kNaN;
}
/// REQUIRES: `out` is zero.
__global__ void random_k_decode_kernel(std::size_t size, const float* in, std::size_t kept, CounterRng places,
                                       std::size_t begin, float* out) {
  if (std::isnan(in[0])) {
    for (std::size_t i = thread_of_grid(); i < size; i += threads_of_grid()) out[i] = kNaN;
    return;
  }
  for (std::size_t i = thread_of_grid(); i < kept; i += threads_of_grid())
    out[random_place(places, begin, i, size, kept)] = in[i];
}

/// The codes, which follow the scales of all blocks.
template <class Byte>
auto codes_after(Byte* bytes, std::size_t elements, std::size_t block) {
  using Code = std::conditional_t<std::is_const_v<Byte>, const std::uint8_t, std::uint8_t>;
  return reinterpret_cast<Code*>(bytes + blocks_of(elements, block) * sizeof(float));
}

unsigned warps_for(const Queue& queue, std::size_t warps) { return blocks_for(queue, warps * kWarp, kThreads); }
unsigned fours_for(const Queue& queue, std::size_t size) {
  return blocks_for(queue, blocks_of(size, Four::kSize), kThreads);
}

}  // namespace

cudaError_t int8_encode(const Queue& queue, ConstElements values, std::byte* out) {
  const std::size_t size = values.size();
  return launch(queue, &int8_encode_kernel, warps_for(queue, blocks_of(size, kInt8Block)), kThreads, 0, size,
                floats(values), reinterpret_cast<float*>(out), codes_after(out, size, kInt8Block));
}
cudaError_t int8_decode(const Queue& queue, const std::byte* in, Elements out) {
  const std::size_t size = out.size();
  return launch(queue, &int8_decode_kernel, fours_for(queue, size), kThreads, 0, size,
                reinterpret_cast<const float*>(in), codes_after(in, size, kInt8Block), floats(out));
}

cudaError_t sign_encode(const Queue& queue, ConstElements values, std::byte* out) {
  const std::size_t size = values.size();
  return launch(queue, &sign_encode_kernel, warps_for(queue, blocks_of(size, kSignBlock)), kThreads, 0, size,
                floats(values), reinterpret_cast<float*>(out), codes_after(out, size, kSignBlock));
}
cudaError_t sign_decode(const Queue& queue, const std::byte* in, Elements out) {
  const std::size_t size = out.size();
  return launch(queue, &sign_decode_kernel, fours_for(queue, size), kThreads, 0, size,
                reinterpret_cast<const float*>(in), codes_after(in, size, kSignBlock), floats(out));
}

cudaError_t top_k_encode(const Queue& queue, ConstElements values, std::size_t kept, std::byte* out,
                         std::byte* scratch) {
  const std::size_t size = values.size();
  const std::size_t chunk = blocks_of(blocks_of(size, kTopKChunks), kTile) * kTile;
  const auto chunks = static_cast<unsigned>(blocks_of(size, chunk));
  auto* const at = reinterpret_cast<TopKScratch*>(scratch);
  unsigned shift = 31;
  for (const unsigned bits : kDigits) {
    const bool first = shift == 31;
    shift -= bits;
    if (const cudaError_t error =
            launch(queue, &histogram_kernel, chunks, kThreads, 0, size, chunk, floats(values), shift, bits, at);
        error != cudaSuccess)
      return error;
    if (const cudaError_t error =
            launch(queue, &choose_kernel, 1, kThreads, 0, bits, first, static_cast<std::uint32_t>(kept), at);
        error != cudaSuccess)
      return error;
  }
  if (const cudaError_t error = launch(queue, &count_kernel, chunks, kThreads, 0, size, chunk, floats(values), at);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = launch(queue, &sum_kernel, 1, kThreads, 0, chunks, at); error != cudaSuccess)
    return error;
  return launch(queue, &compact_kernel, chunks, kThreads, 0, size, chunk, floats(values), at,
                reinterpret_cast<std::uint32_t*>(out));
}
cudaError_t top_k_decode(const Queue& queue, const std::byte* in, std::size_t kept, Elements out) {
  return launch(queue, &top_k_decode_kernel, blocks_for(queue, kept, kThreads), kThreads, 0, out.size(),
                reinterpret_cast<const std::uint32_t*>(in), kept, reinterpret_cast<std::uint32_t*>(out.data()));
}

cudaError_t random_k_encode(const Queue& queue, ConstElements values, std::size_t kept, const CounterRng& places,
                            std::size_t begin, float factor, std::byte* out) {
  const std::size_t size = values.size();
  auto* const to = reinterpret_cast<float*>(out);
  if (const cudaError_t error = launch(queue, &random_k_encode_kernel, blocks_for(queue, kept, kThreads), kThreads, 0,
                                       size, floats(values), kept, places, begin, factor, to);
      error != cudaSuccess)
    return error;
  return launch(queue, &random_k_mark_kernel, fours_for(queue, size), kThreads, 0, size, floats(values), to);
}
cudaError_t random_k_decode(const Queue& queue, const std::byte* in, std::size_t kept, const CounterRng& places,
                            std::size_t begin, Elements out) {
  return launch(queue, &random_k_decode_kernel, blocks_for(queue, kept, kThreads), kThreads, 0, out.size(),
                reinterpret_cast<const float*>(in), kept, places, begin, floats(out));
}

}  // namespace psring::optim::cuda
