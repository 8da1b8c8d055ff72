#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/reduce.cuh>
#include <psring/worker/model/cuda/kernels.h>

namespace psring::worker::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// Sums a hash of each element's place and bits (splitmix64's last step). Whole numbers add up in any order.
/// `exponent`: its bits in an element, all of them 1 if the element is no finite number.
template <class Bits>
__global__ void digest_kernel(std::size_t size, const Bits* elements, Bits exponent, Digest* parts) {
  __shared__ std::uint64_t rooms[2][kMostWarps];
  std::uint64_t sum = 0;
  std::uint64_t numbers = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += std::size_t{gridDim.x} * kThreads) {
    const Bits bits = elements[i];
    const bool zero = static_cast<Bits>(bits << 1U) == 0;
    numbers += !zero && (bits & exponent) != exponent ? 1 : 0;
    std::uint64_t x = (std::uint64_t{i} << 32 | i >> 32) ^ bits;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    sum += x ^ x >> 31;
  }
  const auto add = [](std::uint64_t a, std::uint64_t b) { return a + b; };
  sum = block_reduce(sum, std::uint64_t{0}, rooms[0], add);
  numbers = block_reduce(numbers, std::uint64_t{0}, rooms[1], add);
  if (threadIdx.x == 0) parts[blockIdx.x] = {sum, numbers};
}

}  // namespace

cudaError_t digest(const Queue& queue, ConstElements elements, Digest* parts) {
  const auto run = [&](auto exponent) {
    using Bits = decltype(exponent);
    return launch(queue, &digest_kernel<Bits>, kDigestParts, kThreads, 0, elements.size(),
                  reinterpret_cast<const Bits*>(elements.data()), exponent, parts);
  };
  if (elements.type() == DType::f32) return run(std::uint32_t{0x7f800000});
  return run(elements.type() == DType::bf16 ? std::uint16_t{0x7f80} : std::uint16_t{0x7c00});
}

}  // namespace psring::worker::cuda
