#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/device_applier.h>
#include <psring/optim/state_memory.h>
#include <psring/optim/updater.h>
#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// The optimizer over the ranges that this process owns, in place: whole units, or its range of each, as the layout's
/// partition divides them among the ranks of a group. Frozen units have no state, and do not change. Buffers hold the
/// owned ranges; gradients may be overwritten. The sums that a step's update needs from all owners (norms, for clipping
/// and for layerwise rules) travel between the owners; they are exact, so that no partition changes them.
class LocalOptimizer {
 public:
  /// `owners`: the group that divides the units; null: this process has them whole. `device`: holds the units and the
  /// state; null: the host does. REQUIRES: the layout is for the same number of owners; rule, layout and owners outlive
  /// it.
  LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger,
                 ring::ProcessGroup* owners = nullptr, Device* device = nullptr);

  /// Writes the values that the run starts from into the f32 copy of narrow parameters.
  void start(const Plan& plan);

  Range owned(UnitId unit) const;
  /// The step needs the gradients of all units before the first is updated.
  bool whole_step() const { return by_sum() || (owners_ != nullptr && plan_.rule->layerwise()); }
  const optim::LossScaler& loss_scaler() const { return scaler_; }
  /// The step's update of one unit. REQUIRES: !whole_step().
  void update(UnitId unit, Step step, UnitBuffers owned);
  /// The step's update of all units: a collective of the owners.
  void update_all(Step step, std::span<const UnitBuffers> units);

  /// The state that `rank` of `ranks` saves, which divide each unit evenly. `parameters` gives the values of a unit's
  /// range, used if no f32 copy is kept. REQUIRES: this process owns that range.
  std::vector<optim::StatePart> save(std::size_t rank, std::size_t ranks,
                                     const std::function<ConstElements(UnitId, Range)>& parameters);

 private:
  /// The update depends on the sum of all gradients' squares, to clip, or to skip a step that is not finite.
  bool by_sum() const { return plan_.clip_norm > 0 || scaler_.active(); }
  optim::Update told(Step step, float gradient_scale) const;
  Elements master(UnitId unit) { return masters_.empty() ? Elements() : masters_[unit].elements(DType::f32); }
  ConstElements kept(ConstElements values);
  ConstElements kept_state(UnitId unit, std::size_t slot, Range range);
  void apply(const optim::Update& update, UnitId unit, UnitBuffers owned);
  void update_layerwise(const optim::Update& update, Range units, std::span<const UnitBuffers> owned);
  /// The parameters in f32: the copy, if there is one.
  Elements weights(UnitId unit, UnitBuffers owned) { return masters_.empty() ? owned.parameters : master(unit); }
  std::vector<optim::TensorSums> layerwise_sums(UnitId unit, UnitBuffers owned);
  void scale_layerwise(float lr, UnitId unit, std::span<const float> ratios, UnitBuffers owned);
  void add_counted(UnitId unit, ConstElements gradients, std::vector<ConstElements>& all) const;
  void merge(std::span<optim::ExactSum> sums, ring::ProcessGroup* group) const;

  const OptimizerPlan plan_;
  optim::LossScaler scaler_;
  const Layout& layout_;
  const std::vector<UnitId> trained_;
  ring::ProcessGroup* const owners_;
  std::vector<optim::StateMemory> state_;          ///< by unit
  std::vector<Buffer> masters_;                    ///< by unit; see optim::MixedRange
  std::unique_ptr<optim::DeviceApplier> applier_;  ///< null: the host updates
  std::deque<OnHost> saved_;                       ///< copies of device memory, from the last save
  std::deque<std::vector<float>> decoded_;         ///< copies of state in 8 bits, from the last save
};

}  // namespace psring::worker
