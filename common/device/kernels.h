#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/base/dtype.h>

namespace psring {

/// A matrix product y = op(A) op(B), as in BLAS but row-major.
struct Gemm {
  std::size_t m = 0, n = 0, k = 0;        ///< op(A) is m x k, op(B) is k x n, C is m x n
  bool transpose_a = false;               ///< A is stored k x m
  bool transpose_b = false;               ///< B is stored n x k
  std::size_t lda = 0, ldb = 0, ldc = 0;  ///< row strides; 0 means dense
};

/// A convolution with stride 1, and with zeros around the image, so that its size stays: x [batch, in, height, width],
/// weights [out, in, kernel, kernel], y [batch, out, height, width]. REQUIRES: `kernel` is odd, nothing is 0.
struct Convolution {
  std::size_t batch = 0, in = 0, out = 0, height = 0, width = 0, kernel = 0;

  std::size_t pixels() const { return height * width; }
  std::size_t weights() const { return in * out * kernel * kernel; }
  /// Operations of one of the three products: forward, by weights, by input.
  double flops() const { return 2.0 * static_cast<double>(batch * pixels()) * static_cast<double>(weights()); }
};

/// Returns the floats of scratch memory that a convolution's passes need: a formula of the sizes, the same on every
/// processor. Convolutions that would need more are computed as matrix products.
std::size_t convolution_scratch(const Convolution& shape);

/// Dense f32 kernels of one device. An object serves one thread. Deterministic: the same shapes and inputs give the
/// same bits, independent of earlier calls.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// C = alpha * op(A) op(B) + beta * C. With beta = 0, C need not be initialised.
  virtual void gemm(const Gemm& shape, float alpha, const float* a, const float* b, float beta, float* c) = 0;

  enum class Activation { none, relu };
  /// y = activation(x w^T + bias): x [m, k], w [n, k], bias [n] (may be null), y [m, n].
  virtual void linear(std::size_t m, std::size_t n, std::size_t k, const float* x, const float* w, const float* bias,
                      Activation activation, float* y) = 0;

  /// y = activation(x * w + bias). In these three, scratch holds convolution_scratch(shape) floats.
  virtual void convolve(const Convolution& shape, const float* x, const float* w, const float* bias,
                        Activation activation, float* y, std::span<float> scratch) = 0;
  /// Overwrites dx with the gradient with respect to x.
  virtual void convolve_backward_input(const Convolution& shape, const float* dy, const float* w, float* dx,
                                       std::span<float> scratch) = 0;
  /// dw = beta * dw + the gradient with respect to w; db [out] = bias_beta * db + the gradient with respect to the
  /// bias.
  virtual void convolve_backward_weights(const Convolution& shape, const float* x, const float* dy, float beta,
                                         float* dw, float bias_beta, float* db, std::span<float> scratch) = 0;
};

/// Returns oneDNN's kernels with the widest instructions of this processor, on `threads` compute threads. With
/// `operands` bf16, operands are rounded to bf16 and sums are f32, as in matrix units (AMX). Other types compute in
/// f32.
std::unique_ptr<Kernels> make_cpu_kernels(std::size_t threads = 1, DType operands = DType::f32);

}  // namespace psring
