#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/device/kernels.h>

using namespace psring;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> noise(std::size_t n, std::uint32_t stream) {
  const CounterRng rng({.seed = 5, .tensor = stream});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = rng.normal(i);
  return values;
}

struct Operands {
  Gemm shape;
  std::vector<float> a, b;

  /// Strides are `gap` longer than dense; gap 0 leaves them to the kernels.
  Operands(Gemm s, std::size_t gap) : shape(s) {
    const std::size_t lda = (s.transpose_a ? s.m : s.k) + gap;
    const std::size_t ldb = (s.transpose_b ? s.k : s.n) + gap;
    a = noise((s.transpose_a ? s.k : s.m) * lda, 1);
    b = noise((s.transpose_b ? s.n : s.k) * ldb, 2);
    if (gap != 0) shape.lda = lda, shape.ldb = ldb, shape.ldc = s.n + gap;
  }
  double product(std::size_t i, std::size_t j) const {
    const std::size_t lda = shape.lda != 0 ? shape.lda : (shape.transpose_a ? shape.m : shape.k);
    const std::size_t ldb = shape.ldb != 0 ? shape.ldb : (shape.transpose_b ? shape.k : shape.n);
    double sum = 0;
    for (std::size_t l = 0; l < shape.k; ++l)
      sum += static_cast<double>(shape.transpose_a ? a[l * lda + i] : a[i * lda + l]) *
             static_cast<double>(shape.transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
    return sum;
  }
};

/// One product against f64, with a C that is NaN wherever it must not be read, and guarded between rows.
void check_gemm(Kernels& kernels, Gemm dense, std::size_t gap, float alpha, float beta) {
  const Operands in(dense, gap);
  const std::size_t ldc = dense.n + gap;
  const std::vector<float> before = noise(dense.m * ldc, 3);
  std::vector<float> c = before;
  if (beta == 0)
    for (std::size_t i = 0; i < dense.m; ++i) std::fill_n(c.begin() + i * ldc, dense.n, kNan);
  kernels.gemm(in.shape, alpha, in.a.data(), in.b.data(), beta, c.data());
  double worst = 0;
  bool guarded = true;
  for (std::size_t i = 0; i < dense.m; ++i) {
    for (std::size_t j = 0; j < dense.n; ++j) {
      const double expected = alpha * in.product(i, j) + beta * before[i * ldc + j];
      const double error = std::abs(expected - c[i * ldc + j]);
      if (!(error <= worst)) worst = error;
    }
    for (std::size_t j = dense.n; j < ldc; ++j) guarded = guarded && c[i * ldc + j] == before[i * ldc + j];
  }
  INFO(dense.m << "x" << dense.n << "x" << dense.k << (dense.transpose_a ? " A'" : " A")
               << (dense.transpose_b ? " B'" : " B") << " gap " << gap << " alpha " << alpha << " beta " << beta);
  CHECK(worst <= 2e-6 * (1 + std::sqrt(static_cast<double>(dense.k)) * 4));
  CHECK(guarded);
}

}  // namespace

TEST_CASE("gemm agrees with f64 for odd shapes, transposes, strides, alpha and beta") {
  const auto kernels = make_cpu_kernels();
  const std::size_t shapes[][3] = {{1, 1, 1},    {1, 17, 3},   {17, 1, 9},    {5, 7, 1},     {33, 65, 17},
                                   {64, 64, 64}, {64, 10, 51}, {10, 51, 128}, {127, 31, 63}, {1030, 9, 5}};
  for (const auto& [m, n, k] : shapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const std::size_t gap : {0, 13})
          for (const float alpha : {1.0F, 0.125F})
            for (const float beta : {0.0F, 1.0F})
              check_gemm(*kernels, {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb}, gap, alpha, beta);
}

TEST_CASE("gemm of nothing writes nothing, and of no terms scales C") {
  const auto kernels = make_cpu_kernels();
  std::vector<float> c{1, 2, 3, 4};
  kernels->gemm({.m = 0, .n = 2, .k = 2}, 1, nullptr, nullptr, 0, c.data());
  kernels->gemm({.m = 2, .n = 0, .k = 2}, 1, nullptr, nullptr, 0, c.data());
  kernels->gemm({.m = 2, .n = 2, .k = 0}, 1, nullptr, nullptr, 1, c.data());
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  c[1] = kNan;
  kernels->gemm({.m = 2, .n = 1, .k = 0, .ldc = 2}, 1, nullptr, nullptr, 0, c.data());
  CHECK(c[0] == 0);
  CHECK(std::isnan(c[1]));
  CHECK(c[2] == 0);
}

TEST_CASE("linear adds the bias and clips below zero, for any part that is there") {
  const auto kernels = make_cpu_kernels();
  const std::size_t shapes[][3] = {{1, 1, 1}, {128, 10, 51}, {37, 100, 64}, {3, 5, 0}, {0, 4, 4}, {2, 0, 3}};
  for (const auto& [m, n, k] : shapes)
    for (const bool with_bias : {false, true})
      for (const auto activation : {Kernels::Activation::none, Kernels::Activation::relu}) {
        const Operands in({.m = m, .n = n, .k = k, .transpose_b = true}, 0);
        const std::vector<float> bias = noise(n, 4);
        std::vector<float> y(m * n, kNan);
        kernels->linear(m, n, k, in.a.data(), in.b.data(), with_bias ? bias.data() : nullptr, activation, y.data());
        double worst = 0;
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t j = 0; j < n; ++j) {
            double expected = in.product(i, j) + (with_bias ? bias[j] : 0.0F);
            if (activation == Kernels::Activation::relu) expected = std::max(expected, 0.0);
            const double error = std::abs(expected - y[i * n + j]);
            if (!(error <= worst)) worst = error;
          }
        INFO(m << "x" << n << "x" << k << " bias " << with_bias);
        CHECK(worst < 5e-5);
      }
}

TEST_CASE("a divergence is not hidden: NaN goes through products and ReLU") {
  const auto kernels = make_cpu_kernels();
  for (const auto activation : {Kernels::Activation::none, Kernels::Activation::relu}) {
    std::vector<float> x(8 * 16, 1.0F), w(32 * 16, 1.0F), y(8 * 32);
    x[3] = kNan;
    kernels->linear(8, 32, 16, x.data(), w.data(), nullptr, activation, y.data());
    CHECK(std::isnan(y[0]));
    CHECK(y[32] == 16);
  }
}

TEST_CASE("the same call gives the same bits, whatever ran before and wherever the operands lie") {
  for (const bool ta : {false, true}) {
    const Operands in({.m = 96, .n = 70, .k = 130, .transpose_a = ta, .transpose_b = !ta}, 0);
    std::vector<float> first(96 * 70);
    make_cpu_kernels()->gemm(in.shape, 1, in.a.data(), in.b.data(), 0, first.data());
    const auto kernels = make_cpu_kernels();
    for (std::size_t round = 0; round < 20; ++round) {
      const Operands other({.m = 7 + 50 * round, .n = 33, .k = 200}, 0);
      std::vector<float> unused(other.shape.m * 33);
      kernels->gemm(other.shape, 1, other.a.data(), other.b.data(), 0, unused.data());
      std::vector<float> a(in.a.size() + round), c(96 * 70 + round);  // shifted off its alignment
      std::copy(in.a.begin(), in.a.end(), a.begin() + round);
      kernels->gemm(in.shape, 1, a.data() + round, in.b.data(), 0, c.data() + round);
      CHECK(std::memcmp(first.data(), c.data() + round, first.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("ever new shapes and scales are served with bounded preparation") {
  const auto kernels = make_cpu_kernels();
  std::vector<float> a(4, 1.0F), b(4, 1.0F), c(4);
  for (int i = 1; i <= 1200; ++i) {
    kernels->gemm({.m = 2, .n = 2, .k = 2}, static_cast<float>(i), a.data(), b.data(), 0, c.data());
    REQUIRE(c[3] == 2 * static_cast<float>(i));
  }
}
