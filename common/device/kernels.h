#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/base/dtype.h>

namespace psring {

/// y = op(A) op(B), as in BLAS but row-major.
struct Gemm {
  std::size_t m = 0, n = 0, k = 0;        ///< op(A) is m x k, op(B) is k x n, C is m x n
  bool transpose_a = false;               ///< A is stored k x m
  bool transpose_b = false;               ///< B is stored n x k
  std::size_t lda = 0, ldb = 0, ldc = 0;  ///< row strides; 0: dense
};

/// Dense kernels of one device, for f32. One object serves one thread. Deterministic: the same shapes and
/// inputs give the same bits, whatever ran before.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// C = alpha * op(A) op(B) + beta * C. With beta = 0, C need not be initialised.
  virtual void gemm(const Gemm& shape, float alpha, const float* a, const float* b, float beta, float* c) = 0;

  enum class Activation { none, relu };
  /// y = activation(x w^T + bias): x [m, k], w [n, k], bias [n] (may be null), y [m, n].
  virtual void linear(std::size_t m, std::size_t n, std::size_t k, const float* x, const float* w, const float* bias,
                      Activation activation, float* y) = 0;
};

/// oneDNN's kernels, the widest that the processor has. `threads` compute threads. `operands`: bf16 rounds what is
/// multiplied to bf16, and adds up in f32, as matrix units do (AMX); for other types products are f32's.
std::unique_ptr<Kernels> make_cpu_kernels(std::size_t threads = 1, DType operands = DType::f32);

}  // namespace psring
