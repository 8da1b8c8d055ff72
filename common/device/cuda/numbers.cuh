#pragma once

#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <psring/common/base/dtype.h>

namespace psring::cuda {

__host__ __device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// Rounds to the nearest value, ties to even.
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// The elements that a thread reads or writes at once: 16 bytes.
template <class T>
struct Pack {
  static constexpr unsigned kSize = 16 / sizeof(T);
  T values[kSize];

  __device__ static Pack load(const T* from) {
    const int4 bits = *reinterpret_cast<const int4*>(from);
    Pack pack;
    memcpy(&pack, &bits, sizeof(bits));
    return pack;
  }
  __device__ void store(T* to) const {
    int4 bits;
    memcpy(&bits, values, sizeof(bits));
    *reinterpret_cast<int4*>(to) = bits;
  }
};

/// Calls body(T{}) with the type that `type` names. Returns false for types other than f32, f16 and bf16.
template <class Body>
bool with_type(DType type, Body&& body) {
  switch (type) {
    case DType::f32:
      body(float{});
      return true;
    case DType::f16:
      body(__half{});
      return true;
    case DType::bf16:
      body(__nv_bfloat16{});
      return true;
    default:
      return false;
  }
}

}  // namespace psring::cuda
