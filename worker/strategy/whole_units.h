#pragma once

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Parameters of all units, whole, for as long as the strategy lives, and their gradients but in stage 2. Trained units
/// lie one after the other, so that neighbours can move together; the others come after them.
class WholeUnits {
 public:
  /// `answered`: whole, and servers send the mean to where they are staged.
  enum class Gradients : std::uint8_t { whole, answered, none };
  explicit WholeUnits(const Context& context, Gradients gradients = Gradients::whole);

  /// Writes the values that the run starts from.
  void initialise(const Context& context);

  Elements parameters() const { return parameter_values_; }
  /// Of those of units [begin, end) that are trained.
  Elements parameters(Range units) const { return cut(parameter_values_, units); }
  Elements gradients(Range units) const { return cut(gradient_values_, units); }

 private:
  Elements cut(Elements values, Range units) const;

  const Layout& layout_;
  const std::vector<std::size_t> offsets_;  ///< by unit
  Buffer parameters_;
  Buffer gradients_;
  Elements parameter_values_;
  Elements gradient_values_;
  Buffer staged_parameters_;
  Buffer staged_gradients_;
};

}  // namespace psring::worker
