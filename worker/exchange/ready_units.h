#pragma once

#include <vector>

#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// Records the trained units whose gradients were handed over in a step, because the other processes wait for every one
/// of them.
class ReadyUnits {
 public:
  explicit ReadyUnits(const Layout& layout) : layout_(layout), ready_(layout.units.size(), false) {}

  void add(UnitId unit) { ready_.at(unit) = true; }
  /// Ends the step. Throws usage, naming the step and the unit, if a gradient did not come.
  void finish(Step step);

 private:
  const Layout& layout_;
  std::vector<bool> ready_;
};

}  // namespace psring::worker
