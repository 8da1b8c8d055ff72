#pragma once

#include <vector>

#include <psring/worker/exchange/mesh/mesh_groups.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// A tensor that several stages of a pipeline hold, such as GPT's token embedding, which its head reads, too.
struct SharedTensor {
  UnitId unit = 0;
  Range range;            ///< in the unit's buffer
  std::size_t group = 0;  ///< index in MeshGroups::sharing
};

/// Sums the gradients of shared tensors over the stages that hold them, once in each step: every stage then makes the
/// same update. The sum of two stages has another order than the sum of one process, which adds the gradients of all
/// uses micro-batch by micro-batch; so results differ from one process's by rounding.
class SharedTensors {
 public:
  /// REQUIRES: World::mesh if there are shared tensors; plan and world outlive it. `at_owner`: the strategy reduces the
  /// gradients of every micro-batch by themselves, and keeps none. The gradients of shared tensors then add up here
  /// until the last micro-batch, booked as Category::gradients.
  SharedTensors(const Plan& plan, const World& world, std::vector<SharedTensor> tensors, bool at_owner);

  /// Has the unit a shared tensor? Its gradient is handed over after `sum`.
  bool in_unit(UnitId unit) const;
  /// The unit's gradient of a micro-batch is complete. If it leaves by itself, zeros leave in place of the shared
  /// tensors' gradients, but with the last micro-batch.
  void add_up(UnitId unit, const Micro& micro);
  /// A collective of the stages that share.
  void sum();
  void predict(Prediction& prediction) const;
  Nanoseconds waited() const { return waited_; }

 private:
  const Plan& plan_;
  const World& world_;
  const std::vector<SharedTensor> tensors_;
  std::vector<Buffer> sums_;  ///< by tensor: over the micro-batches so far; empty if gradients add up in their units
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
