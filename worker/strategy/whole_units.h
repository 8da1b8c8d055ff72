#pragma once

#include <span>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Parameters and gradients of all units, whole, for as long as the strategy lives: stages 0 and 1. Units lie one
/// after the other, so that neighbours can move together.
class WholeUnits {
 public:
  explicit WholeUnits(const Context& context);

  /// Writes the values that the run starts from.
  void initialise(const Context& context);

  std::span<float> parameters() const { return parameter_values_; }
  /// Of units [begin, end).
  std::span<float> gradients(Range units) const;

 private:
  const Layout& layout_;
  Buffer parameters_;
  Buffer gradients_;
  std::span<float> parameter_values_;
  std::span<float> gradient_values_;
};

}  // namespace psring::worker
