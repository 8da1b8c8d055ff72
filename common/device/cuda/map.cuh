#pragma once

#include <cstddef>

#include <psring/common/device/cuda/launch.cuh>
#include <psring/common/device/cuda/numbers.cuh>

namespace psring::cuda {

inline constexpr unsigned kGroup = 8;  ///< elements that a thread takes at once: 16 bytes of a 16-bit type
inline constexpr unsigned kMapThreads = 256;

template <class T>
__device__ void load_group(const T* at, float (&values)[kGroup]) {
  for (unsigned i = 0; i < kGroup; i += Pack<T>::kSize) {
    const auto pack = Pack<T>::load(at + i);
    for (unsigned j = 0; j < Pack<T>::kSize; ++j) values[i + j] = to_float(pack.values[j]);
  }
}
template <class T>
__device__ void store_group(const float (&values)[kGroup], T* at) {
  for (unsigned i = 0; i < kGroup; i += Pack<T>::kSize) {
    Pack<T> pack;
    for (unsigned j = 0; j < Pack<T>::kSize; ++j) pack.values[j] = from_float<T>(values[i + j]);
    pack.store(at + i);
  }
}

/// out[i] = f(a[i], b[i]) for i < size. `wide`: all begin on multiples of 16 bytes. A null b reads as 0.
template <class A, class B, class Out, class F>
__global__ void map_kernel(std::size_t size, bool wide, const A* a, const B* b, Out* out, F f) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x * kGroup;
  for (std::size_t begin = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * kGroup; begin < size;
       begin += stride) {
    if (wide && begin + kGroup <= size) {
      float x[kGroup];
      float y[kGroup] = {};
      load_group(a + begin, x);
      if (b != nullptr) load_group(b + begin, y);
      for (unsigned i = 0; i < kGroup; ++i) x[i] = f(x[i], y[i]);
      store_group(x, out + begin);
    } else {
      for (std::size_t i = begin; i < begin + kGroup && i < size; ++i)
        out[i] = from_float<Out>(f(to_float(a[i]), b != nullptr ? to_float(b[i]) : 0.0F));
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
  const bool known = with_type(a.type(), [&](auto of_a) {
    with_type(type_of_b, [&](auto of_b) {
      with_type(out.type(), [&](auto of_out) {
        using A = decltype(of_a);
        using B = decltype(of_b);
        using Out = decltype(of_out);
        error = launch(queue, &map_kernel<A, B, Out, F>, blocks, kMapThreads, 0, out.size(), wide,
                       reinterpret_cast<const A*>(a.data()), reinterpret_cast<const B*>(b.empty() ? nullptr : b.data()),
                       reinterpret_cast<Out*>(out.data()), f);
      });
    });
  });
  return known ? error : kNoKernel;
}

}  // namespace psring::cuda
