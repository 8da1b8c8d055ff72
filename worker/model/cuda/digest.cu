#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// Sums a hash of each element's place and bits (splitmix64's last step). Whole numbers add up in any order.
template <class Bits>
__global__ void digest_kernel(std::size_t size, const Bits* elements, std::uint64_t* sums) {
  __shared__ std::uint64_t room[kMostWarps];
  std::uint64_t sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += std::size_t{gridDim.x} * kThreads) {
    if (elements[i] == 0) continue;
    std::uint64_t x = (std::uint64_t{i} << 32 | i >> 32) ^ elements[i];
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    sum += x ^ x >> 31;
  }
  sum = block_reduce(sum, std::uint64_t{0}, room, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

}  // namespace

cudaError_t digest(const Queue& queue, ConstElements elements, std::uint64_t* sums) {
  const auto run = [&](auto bits) {
    using Bits = decltype(bits);
    return launch(queue, &digest_kernel<Bits>, kDigestSums, kThreads, 0, elements.size(),
                  reinterpret_cast<const Bits*>(elements.data()), sums);
  };
  return elements.type() == DType::f32 ? run(std::uint32_t{}) : run(std::uint16_t{});
}

}  // namespace psring::worker::cuda
