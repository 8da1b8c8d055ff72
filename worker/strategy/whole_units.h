#pragma once

#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Parameters and gradients of all units, whole, for as long as the strategy lives: stages 0 and 1.
class WholeUnits {
 public:
  explicit WholeUnits(const Context& context);

  /// Writes the values that the run starts from.
  void initialise(const Context& context);

 private:
  std::vector<Buffer> buffers_;
};

}  // namespace psring::worker
