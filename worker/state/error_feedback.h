#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/device_applier.h>
#include <psring/optim/loss_scaler.h>

namespace psring::worker {

/// The residual of a worker: the part of its gradients that compression lost so far. It is added to the next gradients
/// (error feedback: Seide et al., Interspeech 2014; Stich et al., arXiv:1809.07599). Gradients are f32. The residual of
/// trained units is booked as optimizer state, and lies in the memory of the same processor as the gradients.
class ErrorFeedback {
 public:
  /// `device`: that holds the gradients; null: the host. REQUIRES: layout, ledger and device outlive it.
  ErrorFeedback(const Layout& layout, MemoryLedger& ledger, Device* device = nullptr);

  /// Gradients are scaled with the losses; `skips`: steps may be skipped. `scaler` is asked when a step's first
  /// gradient is added. It knows the outcome of every earlier step by then. The residual is then multiplied when the
  /// scale changes, and a step that is skipped leaves it as it was, for which it is kept twice. The same holds for a
  /// step in which this worker's own gradients were not finite, though the aggregation rule may have made a finite one
  /// of all.
  void follow(std::function<optim::LossScaler()> scaler, bool skips);
  /// Returns the residual of a unit's range plus the gradient. The caller encodes these values, then subtracts the
  /// values that a receiver decodes.
  Elements add(std::size_t unit, Range range, std::uint64_t step, std::size_t micro, ConstElements gradient);
  /// Ends the step whose gradients were added last. REQUIRES: `scaler` knows the outcome of that step.
  void settle();

  /// The residual of a trained unit. Between two steps, after settle, it is this worker's state.
  Elements residual(std::size_t unit) { return residual(unit, settled_); }
  /// The residual that was loaded belongs to losses that were multiplied by `loss_scale`.
  void loaded(float loss_scale) { loss_scale_ = loss_scale; }
  std::size_t size_bytes() const { return residual_[0].size_bytes() + residual_[1].size_bytes(); }

 private:
  Elements residual(std::size_t unit, std::size_t which);
  bool skips() const { return residual_[1].size_bytes() > 0; }
  /// The residual that the step under way leaves, unless the step is skipped.
  std::size_t pending() const { return skips() ? 1 - settled_ : settled_; }
  bool pending_is_finite();

  const Layout& layout_;
  MemoryLedger& ledger_;
  Device* const device_;
  /// The second is used if steps may be skipped: one holds the residual after the last settled step, the other the
  /// residual of the step under way.
  Buffer residual_[2];
  std::size_t settled_ = 0;
  std::vector<std::size_t> offsets_;  ///< by unit
  std::function<optim::LossScaler()> scaler_;
  std::unique_ptr<optim::DeviceApplier> applier_;  ///< sums up a device's residual
  bool under_way_ = false;                         ///< gradients of `step_` were added, and it is not settled
  std::uint64_t step_ = 0;
  std::uint64_t steps_skipped_ = 0;  ///< when `step_` began
  float loss_scale_ = 0;             ///< of the residual; 0: the residual is zero, or its scale is not known
};

}  // namespace psring::worker
