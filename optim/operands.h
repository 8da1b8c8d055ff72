#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <psring/optim/optimizer.h>

namespace psring::optim {

/// The arguments of one `Optimizer::apply`, checked, as the pointers that a rule's loop runs over. Loops
/// carry `#pragma GCC ivdep`: `out` may be one of the inputs, but an element depends on no other element.
struct Operands {
  const float* w = nullptr;
  const float* g = nullptr;
  float* out = nullptr;
  std::size_t size = 0;
};

/// Throws bug where spans, the state's first `slots` among them, are not as long as the parameters.
Operands checked_operands(std::size_t slots, std::span<const float> parameters, std::span<const float> gradient,
                          const Optimizer::State& state, std::span<float> out);

/// Throws usage, naming the flag, unless 0 <= value (at_least_zero), or 0 <= value < 1 (fraction).
void require_at_least_zero(std::string_view flag, double value);
void require_fraction(std::string_view flag, double value);

}  // namespace psring::optim
