#pragma once

#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Which trained units' gradients have come in a step. The other processes wait for every one of them.
class ReadyUnits {
 public:
  explicit ReadyUnits(const Layout& layout) : layout_(layout), ready_(layout.units.size(), false) {}

  void add(UnitId unit) { ready_.at(unit) = true; }
  /// Throws usage, naming the step and the unit, where one did not come; from here the next step counts.
  void finish(Step step);

 private:
  const Layout& layout_;
  std::vector<bool> ready_;
};

}  // namespace psring::worker
