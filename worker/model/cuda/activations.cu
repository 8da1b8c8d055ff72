#include <cmath>

#include <psring/common/device/cuda/map.cuh>
#include <psring/worker/model/cuda/kernels.h>

namespace psring::worker::cuda {
namespace {

// GELU in its tanh form, as in worker/model/layers/gelu.h.

constexpr float kGeluScale = 0.7978845608028654F;  ///< sqrt(2 / pi)
constexpr float kGeluCube = 0.044715F;

__device__ float gelu_of(float x) { return 0.5F * x * (1.0F + tanhf(kGeluScale * (x + kGeluCube * x * x * x))); }

__device__ float gelu_slope(float x) {
  const float t = tanhf(kGeluScale * (x + kGeluCube * x * x * x));
  return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * kGeluScale * (1.0F + 3.0F * kGeluCube * x * x);
}

struct Gelu {
  __device__ float operator()(float x, float) const { return gelu_of(x); }
};
struct GeluSlope {
  __device__ float operator()(float x, float dy) const { return dy * gelu_slope(x); }
};
/// ReLU's slope, computed from its output. NaN passes the gradient through.
struct ReluSlope {
  __device__ float operator()(float y, float dy) const { return y <= 0 ? 0.0F : dy; }
};

template <class T>
__global__ void finish_kernel(std::size_t rows, std::size_t cols, const T* added, const T* bias, Product::Then then,
                              T* kept, T* out) {
  const std::size_t size = rows * cols;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    float x = to_float(out[i]);
    if (added != nullptr) x += to_float(added[i]);
    if (bias != nullptr) x += to_float(bias[i % cols]);
    switch (then) {
      case Product::Then::nothing:
        break;
      case Product::Then::relu:
        x = x <= 0 ? 0.0F : x;
        break;
      case Product::Then::gelu:
        kept[i] = from_float<T>(x);
        x = gelu_of(to_float(kept[i]));  // of the rounded value, which backward will read
        break;
      case Product::Then::times_gelu_gradient:
        x *= gelu_slope(to_float(kept[i]));
        break;
    }
    out[i] = from_float<T>(x);
  }
}

}  // namespace

cudaError_t gelu(const Queue& queue, ConstElements x, Elements y) { return map(queue, x, {}, y, Gelu{}); }
cudaError_t slope(const Queue& queue, TensorKernels::Slope slope, ConstElements value, ConstElements dy, Elements dx) {
  if (slope == TensorKernels::Slope::gelu_of_input) return map(queue, value, dy, dx, GeluSlope{});
  return map(queue, value, dy, dx, ReluSlope{});
}

cudaError_t finish_product(const Queue& queue, Rows shape, const Product& product) {
  cudaError_t error = kNoKernel;
  const auto pointer = [](auto type, auto elements) {
    using T = decltype(type);
    return elements.empty() ? nullptr : reinterpret_cast<T*>(const_cast<std::byte*>(elements.data()));
  };
  with_type(product.out.type(), [&](auto type) {
    using T = decltype(type);
    error = launch(queue, &finish_kernel<T>, blocks_for(queue, shape.rows * shape.cols, kMapThreads), kMapThreads, 0,
                   shape.rows, shape.cols, static_cast<const T*>(pointer(type, product.added)),
                   static_cast<const T*>(pointer(type, product.bias)), product.then, pointer(type, product.kept),
                   pointer(type, product.out));
  });
  return error;
}

}  // namespace psring::worker::cuda
