#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/optim/updater.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// The optimizer over what this process owns, in place: whole units, or its range of each, as the layout's partition
/// cuts them among the ranks of a group. Buffers are those of what is owned; gradients may be overwritten. What a
/// step's update needs of all owners (norms for clipping and for layerwise rules) they tell each other; sums are exact,
/// so no partition changes them.
class LocalOptimizer {
 public:
  /// `owners`: who shares the units; null: this process has them whole.
  /// REQUIRES: a layout for as many owners; rule, layout and owners outlive it.
  LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger,
                 ring::ProcessGroup* owners = nullptr);

  Range owned(UnitId unit) const;
  /// The step needs the gradients of all units before the first is updated.
  bool whole_step() const { return plan_.clip_norm > 0 || (owners_ != nullptr && plan_.rule->layerwise()); }
  /// The step's update of one unit. REQUIRES: !whole_step().
  void update(UnitId unit, Step step, UnitBuffers owned);
  /// The step's update of all units: a collective of the owners.
  void update_all(Step step, std::span<const UnitBuffers> units);

 private:
  optim::Update told(Step step, float gradient_scale) const;
  optim::Optimizer::State state(UnitId unit);
  void update_layerwise(const optim::Update& update, std::span<const UnitBuffers> units);
  void merge(std::span<optim::ExactSum> sums) const;

  const OptimizerPlan plan_;
  const Layout& layout_;
  ring::ProcessGroup* const owners_;
  std::vector<std::array<Buffer, optim::Optimizer::kMaxSlots>> state_;  ///< by unit
};

}  // namespace psring::worker
