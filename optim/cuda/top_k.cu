#include <algorithm>
#include <cmath>

#include <psring/optim/cuda/fours.cuh>

// The threshold is the magnitude of the last value that is kept. Most of the time goes into reading all values, so they
// are read once: a sample of them gives a bound below the threshold, the values at or above the bound become
// candidates, and the threshold is found among these. Where the bound turns out to be useless, all values are the
// candidates.

namespace psring::optim::cuda {
namespace {

constexpr unsigned kTileThreads = 128;
constexpr unsigned kFours = 8;                                   ///< of a thread, in a tile
constexpr unsigned kTile = kTileThreads * kFours * Four::kSize;  ///< values that a block turns into candidates
constexpr unsigned kSampled = 256;                ///< one in this number of groups of four values is in the sample
constexpr std::size_t kLeastSampled = 1U << 16U;  ///< fewer values are all candidates

/// Magnitudes are 31 bits, and as whole numbers keep their order. Their digits, the leading one first; the bound has
/// the first two.
constexpr unsigned kMagnitudeBits = 31;
constexpr unsigned kDigits[] = {11, 10, 10};
constexpr unsigned kBins = 1U << 11U;

__device__ std::uint32_t magnitude(float value) { return bits_of(value) & 0x7fffffff; }

/// Two counts: magnitudes above the threshold in the lower half, equal ones in the upper half.
using Found = std::uint64_t;
constexpr Found kAbove = 1;
constexpr Found kEqual = Found{1} << 32;

/// The state that the kernels of one call share. It begins with zeros; the arrays follow it.
struct Shared {
  std::uint32_t bins[kBins];
  std::uint32_t bound;       ///< candidates have at least this magnitude
  std::uint32_t candidates;  ///< values at or above the bound, including those without room
  std::uint32_t prefix;      ///< the known digits of the threshold; in the end all of it
  std::uint32_t left;        ///< number of values with this prefix that are kept
  std::uint32_t arrived;     ///< see last_block
};

struct TopK {
  std::size_t size = 0;
  std::uint32_t kept = 0;
  std::uint32_t room = 0;  ///< for candidates; 0: all values are the candidates
  const float* values = nullptr;
  Shared* shared = nullptr;
  std::uint32_t* tile_begin = nullptr;  ///< of each tile's candidates, which are in order
  std::uint32_t* tile_count = nullptr;
  Found* tile_found = nullptr;
  Found* found_before = nullptr;  ///< in the tiles before each kWarps-th
  float* candidates = nullptr;
  std::uint32_t* places = nullptr;  ///< of the candidates

  __host__ __device__ std::size_t tiles() const { return (size + kTile - 1) / kTile; }
  __host__ __device__ std::size_t tile_blocks() const { return (tiles() + kWarps - 1) / kWarps; }
  __device__ bool sampled() const { return room > 0 && shared->candidates >= kept && shared->candidates <= room; }
};

/// One digit of the threshold, or of the bound.
struct Digit {
  unsigned shift;  ///< its lowest bit
  unsigned bits;
  std::uint32_t
      wanted;  ///< place of the threshold among the magnitudes, by size; 0: the place that the previous digit left
};

/// Finds the digit from its counts, in one block. Without a magnitude of the wanted place the digits are 0.
__device__ void choose(const TopK& at, const Digit& digit) {
  __shared__ std::uint32_t room[kWarps];
  constexpr unsigned kEach = kBins / kThreads;
  const std::uint32_t prefix = at.shared->prefix;
  const std::uint32_t wanted = digit.wanted > 0 ? digit.wanted : at.shared->left;
  const auto bin = [&](unsigned k) { return kBins - 1 - (threadIdx.x * kEach + k); };  // the largest first
  std::uint32_t here[kEach];
  std::uint32_t own = 0;
  for (unsigned k = 0; k < kEach; ++k) here[k] = __ldcg(&at.shared->bins[bin(k)]);
  for (unsigned k = 0; k < kEach; ++k) own += here[k];
  std::uint32_t all = 0;
  std::uint32_t above = psring::cuda::block_sum_before(own, room, all);
  for (unsigned k = 0; k < kEach; ++k) {
    at.shared->bins[bin(k)] = 0;
    if (above < wanted && wanted <= above + here[k]) {
      at.shared->prefix = prefix << digit.bits | bin(k);
      at.shared->left = wanted - above;
    }
    above += here[k];
  }
}

/// Finds the next digit among all magnitudes that begin with the known digits: of the candidates, or of a sample of the
/// values, one four of each kSampled, at a place that no pattern of the values follows. The sample's last digit makes
/// the bound.
template <bool kSample>
__global__ void digit_kernel(TopK at, Digit digit, bool last) {
  __shared__ std::uint32_t bins[kBins];
  for (unsigned b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const std::uint32_t prefix = at.shared->prefix;
  const auto count = [&](const Four& four, std::size_t there) {
    for (unsigned j = 0; j < Four::kSize && j < there; ++j) {
      const std::uint32_t level = magnitude(four.values[j]);
      if (level >> (digit.shift + digit.bits) == prefix)
        atomicAdd(&bins[level >> digit.shift & ((1U << digit.bits) - 1)], 1U);
    }
  };
  if constexpr (kSample) {
    for (std::size_t g = thread_of_grid(); g < at.size / (kSampled * Four::kSize); g += threads_of_grid()) {
      static_assert(kSampled == 1U << (32U - 24U));
      const std::uint32_t place = static_cast<std::uint32_t>(g) * 0x9e3779b1U >> 24U;
      count(Four::load(at.values + (g * kSampled + place) * Four::kSize), Four::kSize);
    }
  } else {
    const bool sampled = at.sampled();
    const float* const values = sampled ? at.candidates : at.values;
    const std::size_t size = sampled ? at.shared->candidates : at.size;
    for (std::size_t i = thread_of_grid() * Four::kSize; i < size; i += threads_of_grid() * Four::kSize)
      count(load_four(values, i, size), size - i);
  }
  __syncthreads();
  for (unsigned b = threadIdx.x; b < kBins; b += kThreads)
    if (bins[b] > 0) atomicAdd(&at.shared->bins[b], bins[b]);
  if (!psring::cuda::last_block(&at.shared->arrived)) return;
  choose(at, digit);
  if (!kSample || !last) return;
  __syncthreads();
  if (threadIdx.x > 0) return;
  at.shared->bound = at.shared->prefix << digit.shift;
  at.shared->prefix = 0;
}

/// Copies a tile's candidates, in order. Tiles come in any order.
__global__ void __launch_bounds__(kTileThreads, 6) candidate_kernel(TopK at) {
  __shared__ std::uint32_t counts[kTileThreads / kWarp];
  __shared__ std::uint32_t base;
  std::uint32_t bound = at.shared->bound;
  if (bound == 0) return;  // all values are the candidates; so the zeros behind the last value are none here
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::size_t tile = std::size_t{blockIdx.x} * kTile;
  const float* const values = at.values + tile;
  const auto size = static_cast<unsigned>(min(std::size_t{kTile}, at.size - tile));
  const unsigned first = warp * (kWarp * kFours * Four::kSize) + lane * Four::kSize;
  Four fours[kFours];
  if (size == kTile) {
#pragma unroll
    for (unsigned f = 0; f < kFours; ++f) fours[f] = Four::load(values + first + f * kWarp * Four::kSize);
  } else {
#pragma unroll
    for (unsigned f = 0; f < kFours; ++f)
#pragma unroll
      for (unsigned j = 0; j < Four::kSize; ++j) {
        const unsigned i = first + f * kWarp * Four::kSize + j;
        fours[f].values[j] = i < size ? values[i] : 0.0F;
      }
  }
  const auto is_candidate = [&](unsigned f, unsigned j) { return magnitude(fours[f].values[j]) >= bound; };
  std::uint32_t count = 0;
#pragma unroll
  for (unsigned f = 0; f < kFours; ++f)
#pragma unroll
    for (unsigned j = 0; j < Four::kSize; ++j) count += is_candidate(f, j) ? 1 : 0;
  count = psring::cuda::warp_sum(count);
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t all = 0;
    for (std::uint32_t& each : counts) {
      const std::uint32_t here = each;
      each = all;
      all += here;
    }
    base = atomicAdd(&at.shared->candidates, all);
    at.tile_begin[blockIdx.x] = base;
    at.tile_count[blockIdx.x] = all;
  }
  __syncthreads();
  std::uint32_t to = base + counts[warp];
  if (to + count > at.room) return;  // too many: all values will be the candidates
  asm volatile("" : "+r"(bound));    // compares again, instead of keeping 32 answers: registers are few
#pragma unroll
  for (unsigned f = 0; f < kFours; ++f) {
    std::uint32_t masks[Four::kSize];
    std::uint32_t any = 0;
#pragma unroll
    for (unsigned j = 0; j < Four::kSize; ++j) {
      masks[j] = __ballot_sync(psring::cuda::kAllLanes, is_candidate(f, j));
      any |= masks[j];
    }
    if (any == 0) continue;
    std::uint32_t mine = to;
#pragma unroll
    for (unsigned j = 0; j < Four::kSize; ++j) {
      mine += __popc(masks[j] & ((1U << lane) - 1));
      to += __popc(masks[j]);
    }
#pragma unroll
    for (unsigned j = 0; j < Four::kSize; ++j) {
      if (!is_candidate(f, j)) continue;
      at.candidates[mine] = fours[f].values[j];
      at.places[mine] = static_cast<std::uint32_t>(tile) + first + f * kWarp * Four::kSize + j;
      ++mine;
    }
  }
}

/// Calls body(value, its place) for the candidates of a tile, 32 at a time, for all lanes of a warp; lanes behind the
/// last get 0 and kNowhere.
constexpr std::uint32_t kNowhere = 0xffffffff;
template <class Body>
__device__ void for_candidates(const TopK& at, std::size_t tile, const Body& body) {
  const bool sampled = at.sampled();
  const std::size_t begin = sampled ? at.tile_begin[tile] : tile * kTile;
  const std::size_t end = sampled ? begin + at.tile_count[tile] : min(begin + kTile, at.size);
  for (std::size_t first = begin; first < end; first += kWarp) {
    const std::size_t i = first + threadIdx.x % kWarp;
    float value = 0;
    std::uint32_t place = kNowhere;
    if (i < end) {
      value = sampled ? at.candidates[i] : at.values[i];
      place = sampled ? at.places[i] : static_cast<std::uint32_t>(i);
    }
    body(value, place);
  }
}

/// Counts the values of each tile that are above the threshold, and at it, and sums the counts. A warp handles a tile.
__global__ void count_kernel(TopK at) {
  __shared__ Found room[kWarps];
  const std::uint32_t threshold = at.shared->prefix;
  const std::size_t tile = thread_of_grid() / kWarp;
  Found sum = 0;
  if (tile < at.tiles()) {
    for_candidates(at, tile, [&](float value, std::uint32_t place) {
      const std::uint32_t level = magnitude(value);
      if (place != kNowhere) sum += level > threshold ? kAbove : level == threshold ? kEqual : 0;
    });
    const Found of_tile = psring::cuda::warp_sum(sum);
    if (threadIdx.x % kWarp == 0) at.tile_found[tile] = of_tile;
  }
  sum = psring::cuda::block_reduce(sum, Found{0}, room, [](Found a, Found b) { return a + b; });
  if (threadIdx.x == 0) at.found_before[blockIdx.x] = sum;
  if (!psring::cuda::last_block(&at.shared->arrived)) return;
  const std::size_t each = (at.tile_blocks() + kThreads - 1) / kThreads;
  const std::size_t begin = min(threadIdx.x * each, at.tile_blocks());
  const std::size_t end = min(begin + each, at.tile_blocks());
  Found own = 0;
#pragma unroll 8
  for (std::size_t i = begin; i < end; ++i) own += __ldcg(&at.found_before[i]);
  Found all = 0;
  Found before = psring::cuda::block_sum_before(own, room, all);
  for (std::size_t i = begin; i < end; ++i) {
    const Found here = __ldcg(&at.found_before[i]);
    at.found_before[i] = before;
    before += here;
  }
}

/// Writes places and values, by place: all above the threshold, and the first of those at it. A warp handles a tile.
__global__ void compact_kernel(TopK at, std::uint32_t* out) {
  const std::size_t tile = thread_of_grid() / kWarp;
  if (tile >= at.tiles()) return;
  const std::uint32_t threshold = at.shared->prefix;
  const std::uint32_t ties = at.shared->left;
  const std::uint32_t below = (1U << threadIdx.x % kWarp) - 1;
  Found before = at.found_before[blockIdx.x];
  for (std::size_t earlier = std::size_t{blockIdx.x} * kWarps; earlier < tile; ++earlier)
    before += at.tile_found[earlier];
  auto above = static_cast<std::uint32_t>(before);
  auto equal = static_cast<std::uint32_t>(before / kEqual);
  for_candidates(at, tile, [&](float value, std::uint32_t place) {
    const bool is_above = place != kNowhere && magnitude(value) > threshold;
    const bool is_equal = place != kNowhere && magnitude(value) == threshold;
    const std::uint32_t all_above = __ballot_sync(psring::cuda::kAllLanes, is_above);
    const std::uint32_t all_equal = __ballot_sync(psring::cuda::kAllLanes, is_equal);
    const std::uint32_t my_equal = equal + __popc(all_equal & below);
    if (is_above || (is_equal && my_equal < ties)) {
      const std::size_t to = std::size_t{above} + __popc(all_above & below) + min(my_equal, ties);
      out[2 * to] = place;
      out[2 * to + 1] = bits_of(value);
    }
    above += __popc(all_above);
    equal += __popc(all_equal);
  });
}

/// Lays the arrays of a call out behind each other, from `at` on; returns their bytes.
std::size_t lay_out(TopK& top, std::byte* at) {
  std::size_t bytes = 0;
  const auto take = [&](auto*& array, std::size_t count) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(at + bytes);
    bytes += (count * sizeof(*array) + 15) / 16 * 16;
  };
  take(top.shared, 1);
  take(top.tile_begin, top.tiles());
  take(top.tile_count, top.tiles());
  take(top.tile_found, top.tiles());
  take(top.found_before, top.tile_blocks());
  take(top.candidates, top.room);
  take(top.places, top.room);
  return bytes;
}
TopK top_k_of(std::size_t size, std::size_t kept) {
  TopK top;
  top.size = size;
  top.kept = static_cast<std::uint32_t>(kept);
  if (size >= kLeastSampled && kept <= size / 8) top.room = static_cast<std::uint32_t>(2 * kept + 16384);
  return top;
}

__global__ void top_k_decode_kernel(std::size_t size, const std::uint32_t* in, std::size_t kept, std::uint32_t* out) {
  for (std::size_t i = thread_of_grid(); i < kept; i += threads_of_grid())
    if (in[2 * i] < size) out[in[2 * i]] = in[2 * i + 1];
}

}  // namespace

std::size_t top_k_scratch(std::size_t size, std::size_t kept) {
  TopK top = top_k_of(size, kept);
  return lay_out(top, nullptr);
}
cudaError_t top_k_encode(const Queue& queue, ConstElements values, std::size_t kept, std::byte* out,
                         std::byte* scratch) {
  TopK top = top_k_of(values.size(), kept);
  lay_out(top, scratch);
  top.values = floats(values);
  const auto tiles = static_cast<unsigned>(top.tiles());
  cudaError_t error = cudaMemsetAsync(top.shared, 0, sizeof(Shared), queue.stream);
  const auto run = [&](auto kernel, unsigned blocks, unsigned threads, auto... arguments) {
    if (error == cudaSuccess) error = launch(queue, kernel, blocks, threads, 0, top, arguments...);
  };
  constexpr Digit kFirst{kMagnitudeBits - kDigits[0], kDigits[0], 0};
  constexpr Digit kSecond{kFirst.shift - kDigits[1], kDigits[1], 0};
  constexpr Digit kThird{0, kDigits[2], 0};
  const auto first = [&](std::uint32_t wanted) { return Digit{kFirst.shift, kFirst.bits, wanted}; };
  if (top.room > 0) {
    // A sample with more large values than others, by 4 standard deviations, still leaves enough candidates.
    const double mean = static_cast<double>(kept) / kSampled;
    const auto wanted = static_cast<std::uint32_t>(mean + 4 * std::sqrt(mean)) + 16;
    const unsigned blocks = blocks_for(queue, blocks_of(top.size, kSampled * Four::kSize), kThreads);
    run(&digit_kernel<true>, blocks, kThreads, first(wanted), false);
    run(&digit_kernel<true>, blocks, kThreads, kSecond, true);
    run(&candidate_kernel, tiles, kTileThreads);
  }
  const unsigned blocks = std::min(4 * queue.multiprocessors, fours_for(queue, top.size));
  run(&digit_kernel<false>, blocks, kThreads, first(top.kept), false);
  run(&digit_kernel<false>, blocks, kThreads, kSecond, false);
  run(&digit_kernel<false>, blocks, kThreads, kThird, true);
  const auto tile_blocks = static_cast<unsigned>(top.tile_blocks());
  run(&count_kernel, tile_blocks, kThreads);
  run(&compact_kernel, tile_blocks, kThreads, reinterpret_cast<std::uint32_t*>(out));
  return error;
}
cudaError_t top_k_decode(const Queue& queue, const std::byte* in, std::size_t kept, Elements out) {
  return launch(queue, &top_k_decode_kernel, blocks_for(queue, kept, kThreads), kThreads, 0, out.size(),
                reinterpret_cast<const std::uint32_t*>(in), kept, reinterpret_cast<std::uint32_t*>(out.data()));
}

}  // namespace psring::optim::cuda
