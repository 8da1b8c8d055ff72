#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/operands.h>

namespace psring::optim {

Operands checked_operands(std::size_t slots, std::span<const float> parameters, std::span<const float> gradient,
                          const Optimizer::State& state, std::span<float> out) {
  const std::size_t size = parameters.size();
  check(gradient.size() == size && out.size() == size, "an update of {} parameters by {} gradients into {}", size,
        gradient.size(), out.size());
  for (std::size_t i = 0; i < slots; ++i)
    check(state.slot[i].size() == size, "an update of {} parameters with {} elements in state slot {}", size,
          state.slot[i].size(), i);
  return {parameters.data(), gradient.data(), out.data(), size};
}

void require_at_least_zero(std::string_view flag, double value) {
  if (!(std::isfinite(value) && value >= 0)) fail(ErrorKind::usage, "{}: expected a number >= 0, got {}", flag, value);
  options::check_f32(flag, value);
}

void require_fraction(std::string_view flag, double value) {
  if (!(value >= 0 && value < 1)) fail(ErrorKind::usage, "{}: expected a number >= 0 and < 1, got {}", flag, value);
}

}  // namespace psring::optim
