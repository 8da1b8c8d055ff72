#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <psring/optim/device_applier.h>
#include <psring/optim/updater.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// The optimizer over what this process owns, in place: whole units, or its range of each, as the layout's partition
/// cuts them among the ranks of a group. Of units that are not trained it keeps nothing, and does nothing. Buffers are
/// those of what is owned; gradients may be overwritten. What a step's update needs of all owners (norms for clipping
/// and for layerwise rules) they tell each other; sums are exact, so no partition changes them.
class LocalOptimizer {
 public:
  /// `owners`: who shares the units; null: this process has them whole. `device`: in whose memory units lie, and what
  /// is kept here; null: the host's. REQUIRES: a layout for as many owners; rule, layout and owners outlive it.
  LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger,
                 ring::ProcessGroup* owners = nullptr, Device* device = nullptr);

  /// The copy of narrow parameters that is kept begins with the values that the run starts from.
  void start(const Context& context);

  Range owned(UnitId unit) const;
  /// The step needs the gradients of all units before the first is updated.
  bool whole_step() const { return by_sum() || (owners_ != nullptr && plan_.rule->layerwise()); }
  const optim::LossScaler& loss_scaler() const { return scaler_; }
  /// The step's update of one unit. REQUIRES: !whole_step().
  void update(UnitId unit, Step step, UnitBuffers owned);
  /// The step's update of all units: a collective of the owners.
  void update_all(Step step, std::span<const UnitBuffers> units);

  /// What `rank` of `ranks` saves of each unit, cut evenly among them. `parameters` are those of a unit's range, where
  /// no copy in f32 is kept.
  /// REQUIRES: this process owns that range.
  std::vector<optim::StatePart> save(std::size_t rank, std::size_t ranks,
                                     const std::function<ConstElements(UnitId, Range)>& parameters);

 private:
  /// The update depends on the sum of all gradients' squares: to clip, and to skip a step that is not finite.
  bool by_sum() const { return plan_.clip_norm > 0 || scaler_.active(); }
  optim::Update told(Step step, float gradient_scale) const;
  optim::Optimizer::State state(UnitId unit);
  Elements master(UnitId unit) { return masters_.empty() ? Elements() : masters_[unit].elements(DType::f32); }
  ConstElements kept(ConstElements values);
  void apply(const optim::Update& update, UnitId unit, UnitBuffers owned);
  void update_layerwise(const optim::Update& update, Range units, std::span<const UnitBuffers> owned);
  /// The parameters in f32, wherever they are kept so.
  Elements weights(UnitId unit, UnitBuffers owned) { return masters_.empty() ? owned.parameters : master(unit); }
  std::vector<optim::TensorSums> layerwise_sums(UnitId unit, UnitBuffers owned);
  void scale_layerwise(float lr, UnitId unit, std::span<const float> ratios, UnitBuffers owned);
  void merge(std::span<optim::ExactSum> sums) const;

  const OptimizerPlan plan_;
  optim::LossScaler scaler_;
  const Layout& layout_;
  const std::vector<UnitId> trained_;
  ring::ProcessGroup* const owners_;
  std::vector<std::array<Buffer, optim::Optimizer::kMaxSlots>> state_;  ///< by unit
  std::vector<Buffer> masters_;                                         ///< by unit; see optim::MixedRange
  std::unique_ptr<optim::DeviceApplier> applier_;                       ///< null: the host updates
  std::deque<OnHost> saved_;                                            ///< what of a device was saved last
};

}  // namespace psring::worker
