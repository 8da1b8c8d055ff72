#include <cmath>
#include <cstddef>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/linear.h>
#include <psring/worker/model/layers/gelu.h>
#include <psring/worker/model/layers/vector_math.h>

namespace psring::worker {
namespace {

constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCube = 0.044715F;

/// (1 + tanh(u)) / 2 = 1 / (1 + e^(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3).
inline float gate(float x) {
  const float u = kRoot * x * std::fma(kCube * x, x, 1.0F);
  return 1.0F / (1.0F + exponential(-2.0F * u));
}

/// Clamps x to the range beyond which the gate is 1 or 0 and the square below could overflow.
inline float clamped(float x) {
  x = x > 16.0F ? 16.0F : x;
  return x < -16.0F ? -16.0F : x;
}

/// GELU'(t), where s = gate(t) and |t| <= 16.
inline float derivative(float t, float s) {
  const float slope = 2.0F * kRoot * t * std::fma(3.0F * kCube * t, t, 1.0F);  // t * 2 du/dt
  return std::fma(slope * s, 1.0F - s, s);
}

// ivdep: if the output is the input itself, the compiler would otherwise assume overlap and run its scalar loop.

PSRING_WIDEST void forward_kernel(const float* x, float* y, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * gate(x[i]);
}

PSRING_WIDEST void backward_kernel(const float* x, const float* dy, float* dx, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) {
    const float t = clamped(x[i]);
    dx[i] = dy[i] * derivative(t, gate(t));
  }
}

PSRING_WIDEST void both_kernel(const float* x, float* y, float* d, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) {
    const float t = clamped(x[i]);
    const float s = gate(t);
    y[i] = x[i] * s;
    d[i] *= derivative(t, s);
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

void gelu_again_and_backward(std::span<const float> x, std::span<float> y, std::span<float> d) {
  check(x.size() == y.size() && x.size() == d.size(), "gelu again: {} inputs, {} outputs, {} gradients", x.size(),
        y.size(), d.size());
  both_kernel(x.data(), y.data(), d.data(), x.size());
}

void Gelu::forward(const Forward& pass) const { gelu_forward(pass.x.span(), pass.y.span()); }

void Gelu::backward(const Backward& pass) const {
  if (pass.dx.data != nullptr) gelu_backward(pass.x.span(), pass.dy.span(), pass.dx.span());
}

std::unique_ptr<DeviceLayer> Gelu::on_device() const { return make_device_gelu(); }

}  // namespace psring::worker
