#pragma once

#include <cmath>
#include <cstdint>

#include <psring/common/base/host_device.h>

namespace psring::optim {

/// The update rules for one element (rules.h), shared by host and GPU, with the coefficients of one update. The rule is
/// known at compile time, so that each loop is compiled for one rule, without branches.
enum class Rule : std::uint8_t { sgd, momentum, nesterov, square_scaled, adam, adamw, lamb };

constexpr unsigned slots_of(Rule rule) {
  switch (rule) {
    case Rule::sgd:
      return 0;
    case Rule::momentum:
    case Rule::nesterov:
    case Rule::square_scaled:
      return 1;
    default:
      return 2;
  }
}

struct Formula {
  Rule rule = Rule::sgd;
  float lr = 0;
  float scale = 1;  ///< factor of the gradient, applied first
  float decay = 0;  ///< weight decay
  float keep = 0;   ///< factor of the first slot: momentum, beta1, or alpha of the squares
  float take = 0;   ///< factor of the term that is added to the first slot
  float keep2 = 0;  ///< factor of Adam's second slot
  float take2 = 0;
  float eps = 0;
  float shrink = 1;  ///< 1 - lr * decay
  float step = 0;    ///< lr / (1 - beta1^t)
  float root = 0;    ///< 1 / sqrt(1 - beta2^t)
};

/// Returns the parameter `w` after the update by gradient `g` (for LAMB: the direction), and updates the slots. SGD's
/// step, Nesterov's sum and the gradient's weight decay are fused multiply-adds with one rounding, as in PyTorch's
/// `add_(…, alpha=…)`.
template <Rule kRule>
PSRING_HOST_DEVICE inline float updated(const Formula& f, float w, float g, float& first, float& second) {
  constexpr bool kDecaysGradient = kRule != Rule::adamw && kRule != Rule::lamb;
  const float d = kDecaysGradient ? std::fma(f.decay, w, f.scale * g) : f.scale * g;
  if constexpr (kRule == Rule::sgd) return std::fma(-f.lr, d, w);
  if constexpr (kRule == Rule::momentum || kRule == Rule::nesterov) {
    first = f.keep * first + d;
    return std::fma(-f.lr, kRule == Rule::nesterov ? std::fma(f.keep, first, d) : first, w);
  }
  if constexpr (kRule == Rule::square_scaled) {
    first = f.keep * first + f.take * (d * d);
    return w - f.lr * d / (std::sqrt(first) + f.eps);
  }
  if constexpr (kRule == Rule::adam || kRule == Rule::adamw || kRule == Rule::lamb) {
    first = f.keep * first + f.take * d;
    second = f.keep2 * second + f.take2 * (d * d);
    const float direction = f.step * first / (std::sqrt(second) * f.root + f.eps);
    if constexpr (kRule == Rule::adam) return w - direction;
    if constexpr (kRule == Rule::adamw) return f.shrink * w - direction;
    if constexpr (kRule == Rule::lamb) return direction + f.decay * w;
  }
}

}  // namespace psring::optim
