#pragma once

#include <cstdint>
#include <vector>

#include <psring/worker/exchange/local_optimizer.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers/servers.h>

namespace psring::worker {

/// Every worker applies the optimizer to everything, from the mean that the servers answer a push with. A unit is
/// updated when a pass first needs it, so that answers may still be on their way until then.
class LateUpdates final : public Updates {
 public:
  LateUpdates(const Plan& plan, const World& world, Servers& servers);

  /// On return the unit has the version that this worker wants. Called before the unit is used.
  void bring_up_to_date(UnitId unit);

  void start() override;
  void finish(Step /*step*/) override {}
  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }
  /// All workers have the same state: worker 0 saves it.
  std::vector<optim::StatePart> state() override;
  void predict(Prediction& sum) const override;

 private:
  const Plan& plan_;
  const World& world_;
  Servers& servers_;
  LocalOptimizer optimizer_;
  std::vector<std::uint64_t> versions_;  ///< of each unit's parameters here
};

}  // namespace psring::worker
