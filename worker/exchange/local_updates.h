#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <psring/worker/exchange/local_optimizer.h>
#include <psring/worker/exchange/parts.h>

namespace psring::worker {

/// The part of parameters and optimizer state that this process saves: one of `parts` even parts of each unit.
/// REQUIRES: the process owns that part.
struct SavedShare {
  bool saves = true;
  std::size_t part = 0;
  std::size_t parts = 1;
};

/// This process applies the optimizer: to everything, or to the range that it owns.
class LocalUpdates final : public Updates {
 public:
  /// `owners`: the group that divides the units; null: this process updates everything. `saved`: empty: each worker
  /// saves an even part, as all of them have everything. REQUIRES: parameters and gradients outlive it.
  LocalUpdates(const Plan& plan, const World& world, Parameters& parameters, Gradients& gradients,
               std::optional<SavedShare> saved = {}, ring::ProcessGroup* owners = nullptr);

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
  const SavedShare saved_;
  const bool divided_;  ///< among the layout's owners
  LocalOptimizer optimizer_;
  const bool as_they_land_;
};

}  // namespace psring::worker
