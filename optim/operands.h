#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <psring/optim/optimizer.h>

namespace psring::optim {

/// The checked arguments of one `Optimizer::apply`, as pointers for the rule's loop. The loops use `#pragma GCC ivdep`:
/// `out` may be one of the inputs, but no element depends on another element.
struct Operands {
  const float* w = nullptr;
  const float* g = nullptr;
  float* out = nullptr;
  std::size_t size = 0;
};

/// Throws bug if a span, including the state's first `slots` spans, has not the parameters' size.
Operands checked_operands(std::size_t slots, std::span<const float> parameters, std::span<const float> gradient,
                          const Optimizer::State& state, std::span<float> out);

/// Calls updated<kRule> for every element.
template <Rule kRule>
void apply_formula(const Formula& formula, std::span<const float> parameters, std::span<const float> gradient,
                   const Optimizer::State& state, std::span<float> out) {
  const Formula f = formula;  // a local copy, which the loop's stores cannot alias
  const Operands at = checked_operands(slots_of(kRule), parameters, gradient, state, out);
  float* const first = state.slot[0].data();
  float* const second = state.slot[1].data();
#pragma GCC ivdep
  for (std::size_t i = 0; i < at.size; ++i) {
    float a = slots_of(kRule) > 0 ? first[i] : 0;
    float b = slots_of(kRule) > 1 ? second[i] : 0;
    const float after = updated<kRule>(f, at.w[i], at.g[i], a, b);
    if constexpr (slots_of(kRule) > 0) first[i] = a;
    if constexpr (slots_of(kRule) > 1) second[i] = b;
    at.out[i] = after;
  }
}

/// Throws usage, naming the flag, unless value >= 0 (at_least_zero), or 0 <= value < 1 (fraction).
void require_at_least_zero(std::string_view flag, double value);
void require_fraction(std::string_view flag, double value);

}  // namespace psring::optim
