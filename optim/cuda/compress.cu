#include <cmath>

#include <psring/optim/cuda/fours.cuh>

// Compiled without fused multiply-add, so that the bits equal the host's.

namespace psring::optim::cuda {
namespace {

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
