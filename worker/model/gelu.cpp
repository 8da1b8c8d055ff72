#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <psring/common/base/error.h>
#include <psring/worker/model/gelu.h>

// One clone a vector width, chosen when the program starts. Only explicit fused operations stand in the
// arithmetic, in one order, so that all clones give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PSRING_WIDEST __attribute__((target_clones("avx512f", "default")))
#else
#define PSRING_WIDEST  // the resolvers of clones run before the sanitizers are up
#endif

namespace psring::worker {
namespace {

constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCube = 0.044715F;

/// e^z, relative error below 3e-7 for z in [-87, 87]; outside, the value at the nearer end; NaN stays NaN.
inline float exponential(float z) {
  z = z > 87.0F ? 87.0F : z;
  z = z < -87.0F ? -87.0F : z;
  constexpr float kShift = 0x1.8p23F;  // adding it rounds to a whole number, which stands in the low bits
  const float shifted = std::fma(z, 1.44269504F, kShift);
  const float n = shifted - kShift;
  float r = std::fma(n, -0x1.62e4p-1F, z);  // ln 2 in two pieces: the first one's product with n is exact
  r = std::fma(n, -0x1.7f7d1cp-20F, r);
  float p = 1.0F / 720;  // e^r by Taylor's series: |r| <= ln(2) / 2, so the rest is below 1.3e-7
  p = std::fma(p, r, 1.0F / 120);
  p = std::fma(p, r, 1.0F / 24);
  p = std::fma(p, r, 1.0F / 6);
  p = std::fma(p, r, 0.5F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23));
}

/// (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
inline float gate(float x) {
  const float u = kRoot * x * std::fma(kCube * x, x, 1.0F);
  return 1.0F / (1.0F + exponential(-2.0F * u));
}

PSRING_WIDEST void forward_kernel(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * gate(x[i]);
}

PSRING_WIDEST void backward_kernel(const float* x, const float* dy, float* dx, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    float t = x[i] > 16.0F ? 16.0F : x[i];  // beyond it the gate is 1 or 0, and the square must not overflow
    t = t < -16.0F ? -16.0F : t;
    const float s = gate(t);
    const float slope = 2.0F * kRoot * t * std::fma(3.0F * kCube * t, t, 1.0F);  // t * 2 du/dt
    dx[i] = dy[i] * std::fma(slope * s, 1.0F - s, s);
  }
}

}  // namespace

void gelu_forward(std::span<const float> x, std::span<float> y) {
  check(x.size() == y.size(), "gelu: {} inputs, {} outputs", x.size(), y.size());
  forward_kernel(x.data(), y.data(), x.size());
}

void gelu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
  check(x.size() == dy.size() && x.size() == dx.size(), "gelu backward: {} inputs, {} and {} gradients", x.size(),
        dy.size(), dx.size());
  backward_kernel(x.data(), dy.data(), dx.data(), x.size());
}

void Gelu::forward(const Forward& pass) const { gelu_forward(pass.x.span(), pass.y.span()); }

void Gelu::backward(const Backward& pass) const {
  if (pass.dx.data != nullptr) gelu_backward(pass.x.span(), pass.dy.span(), pass.dx.span());
}

}  // namespace psring::worker
