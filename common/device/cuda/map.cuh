#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>

namespace psring::cuda {

inline constexpr unsigned kGroup = 8;  ///< elements that a thread handles at once
inline constexpr unsigned kMapThreads = 256;

/// Length of a run that a thread reads: 16 bytes of the widest type.
template <class... Ts>
constexpr unsigned kRun = ((sizeof(Ts) == 2) && ...) ? 8 : 4;

/// The elements that a thread handles at once, as several runs. The runs of neighbouring lanes are adjacent, so that a
/// warp reads and writes contiguous memory.
template <unsigned kSize>
struct Group {
  std::size_t begin;

  __device__ static Group of_thread() {
    const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    return {thread / kLanes * kLanes * kGroup + thread % kLanes * kSize};
  }
  __device__ void next() { begin += std::size_t{gridDim.x} * blockDim.x * kGroup; }
  __device__ std::size_t place(unsigned i) const { return begin + i / kSize * kLanes * kSize + i % kSize; }
  /// Returns whether all elements of the group lie below `size`.
  __device__ bool is_whole(std::size_t size) const { return place(kGroup - 1) < size; }

  /// REQUIRES: the group is whole, and the array is aligned to 16 bytes.
  template <class T>
  __device__ void load(const T* from, float (&values)[kGroup]) const {
#pragma unroll
    for (unsigned i = 0; i < kGroup; i += kSize) {
      const auto bits = *reinterpret_cast<const Bits<T>*>(from + place(i));
      T run[kSize];
      memcpy(run, &bits, sizeof(run));
      for (unsigned j = 0; j < kSize; ++j) values[i + j] = to_float(run[j]);
    }
  }
  template <class T>
  __device__ void store(const float (&values)[kGroup], T* to) const {
#pragma unroll
    for (unsigned i = 0; i < kGroup; i += kSize) {
      T run[kSize];
      for (unsigned j = 0; j < kSize; ++j) run[j] = from_float<T>(values[i + j]);
      Bits<T> bits;
      memcpy(&bits, run, sizeof(run));
      *reinterpret_cast<Bits<T>*>(to + place(i)) = bits;
    }
  }

 private:
  static constexpr unsigned kLanes = 32;
  template <class T>
  struct BitsOf {
    static_assert(kSize * sizeof(T) == 16 || kSize * sizeof(T) == 8);
    using Type = std::conditional_t<kSize * sizeof(T) == 16, int4, int2>;
  };
  template <class T>
  using Bits = typename BitsOf<T>::Type;
};

/// out[i] = f(a[i], b[i]) for i < size. `wide`: all arrays are aligned to 16 bytes. A null b reads as 0.
template <class A, class B, class Out, class F>
__global__ void map_kernel(std::size_t size, bool wide, const A* a, const B* b, Out* out, F f) {
  auto group = Group<kRun<A, B, Out>>::of_thread();
  for (; group.begin < size; group.next()) {
    if (wide && group.is_whole(size)) {
      float x[kGroup];
      float y[kGroup] = {};
      group.load(a, x);
      if (b != nullptr) group.load(b, y);
      for (unsigned i = 0; i < kGroup; ++i) x[i] = f(x[i], y[i]);
      group.store(x, out);
    } else {
      for (unsigned n = 0; n < kGroup; ++n) {
        const std::size_t i = group.place(n);
        if (i < size) out[i] = from_float<Out>(f(to_float(a[i]), b != nullptr ? to_float(b[i]) : 0.0F));
      }
    }
  }
}

/// `b` may be empty. REQUIRES: equal sizes.
template <class F>
cudaError_t map(const Queue& queue, ConstElements a, ConstElements b, Elements out, F f) {
  if (a.size() != out.size() || (!b.empty() && b.size() != out.size())) return cudaErrorInvalidValue;
  if (out.empty()) return cudaSuccess;
  cudaError_t error = kNoKernel;
  const bool wide = aligned(a.data()) && aligned(b.data()) && aligned(out.data());
  const unsigned blocks = blocks_for(queue, (out.size() + kGroup - 1) / kGroup, kMapThreads);
  const DType type_of_b = b.empty() ? a.type() : b.type();
  const bool known = with_type(a.type(), [&](auto type_a) {
    with_type(type_of_b, [&](auto type_b) {
      with_type(out.type(), [&](auto type_out) {
        using A = decltype(type_a);
        using B = decltype(type_b);
        using Out = decltype(type_out);
        error = launch(queue, &map_kernel<A, B, Out, F>, blocks, kMapThreads, 0, out.size(), wide,
                       reinterpret_cast<const A*>(a.data()), reinterpret_cast<const B*>(b.empty() ? nullptr : b.data()),
                       reinterpret_cast<Out*>(out.data()), f);
      });
    });
  });
  return known ? error : kNoKernel;
}

}  // namespace psring::cuda
