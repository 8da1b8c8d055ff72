#pragma once

#include <optional>
#include <vector>

#include <psring/worker/exchange/local_optimizer.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/workers/shard_groups.h>

namespace psring::worker {

/// This process applies the optimizer: to everything, or to the range that it owns.
class LocalUpdates final : public Updates {
 public:
  /// `groups`: this process updates the ranges that it owns among the workers of its shard group; null: everything.
  /// REQUIRES: parameters, gradients and groups outlive it.
  LocalUpdates(const Plan& plan, const World& world, Parameters& parameters, Gradients& gradients,
               const ShardGroups* groups = nullptr);

  void start() override { optimizer_.start(plan_); }
  /// Updates the units at once, unless the step has to be whole.
  void landed(Range units, Step step) override;
  void finish(Step step) override;
  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }
  std::vector<optim::StatePart> state() override;
  std::optional<std::vector<optim::StatePart>> whole_state() override;
  void predict(Prediction& sum) const override;

 private:
  UnitBuffers owned(UnitId unit) { return {parameters_.owned(unit), gradients_.owned(unit)}; }
  std::vector<optim::StatePart> save(std::size_t part, std::size_t parts);

  const Plan& plan_;
  const World& world_;
  Parameters& parameters_;
  Gradients& gradients_;
  const ShardGroups* const groups_;
  LocalOptimizer optimizer_;
  const bool as_they_land_;
};

}  // namespace psring::worker
