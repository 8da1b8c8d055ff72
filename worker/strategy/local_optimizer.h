#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// The optimizer over units that this process holds whole, in place.
class LocalOptimizer {
 public:
  LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger);

  /// Clipping needs the gradients of all units before the first is updated.
  bool whole_step() const { return plan_.clip_norm > 0; }
  /// The step's update of one unit; its gradient may be overwritten. REQUIRES: !whole_step().
  void update(UnitId unit, Step step, UnitBuffers buffers);
  /// The step's update of all units.
  void update_all(Step step, std::span<const UnitBuffers> units);

 private:
  void apply(UnitId unit, Step step, float gradient_scale, UnitBuffers buffers);

  const OptimizerPlan plan_;
  const Layout& layout_;
  std::vector<std::array<Buffer, optim::Optimizer::kMaxSlots>> state_;  ///< by unit
};

}  // namespace psring::worker
