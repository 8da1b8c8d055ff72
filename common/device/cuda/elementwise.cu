#include <psring/common/device/cuda/map.cuh>

namespace psring::cuda {
namespace {

/// Rounds to a value that `type` can represent.
__device__ float rounded(DType type, float x) {
  switch (type) {
    case DType::f16:
      return to_float(from_float<__half>(x));
    case DType::bf16:
      return to_float(from_float<__nv_bfloat16>(x));
    default:
      return x;
  }
}

struct Same {
  __device__ float operator()(float x, float) const { return x; }
};
struct Times {
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};
struct Plus {
  __device__ float operator()(float x, float y) const { return x + y; }
};
struct Minus {
  __device__ float operator()(float x, float y) const { return x - y; }
};
struct Rounded {
  DType type;
  __device__ float operator()(float x, float) const { return rounded(type, x); }
};

}  // namespace

cudaError_t convert(const Queue& queue, ConstElements from, Elements to) { return map(queue, from, {}, to, Same{}); }
cudaError_t multiply(const Queue& queue, Elements values, float factor) {
  return map(queue, values, {}, values, Times{factor});
}
cudaError_t add(const Queue& queue, Elements sum, ConstElements values) { return map(queue, sum, values, sum, Plus{}); }
cudaError_t subtract(const Queue& queue, Elements from, ConstElements values) {
  return map(queue, from, values, from, Minus{});
}
cudaError_t round_values(const Queue& queue, DType type, Elements values) {
  return map(queue, values, {}, values, Rounded{type});
}

}  // namespace psring::cuda
