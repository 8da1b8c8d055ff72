#pragma once

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers/servers.h>

namespace psring::worker {

/// The servers apply the optimizer.
class ServerUpdates final : public Updates {
 public:
  ServerUpdates(const Plan& plan, Servers& servers) : plan_(plan), servers_(servers) {}

  void finish(Step /*step*/) override {}
  optim::LossScaler loss_scaler() override { return servers_.loss_scaler(); }
  std::vector<optim::StatePart> state() override { return {}; }
  void predict(Prediction& sum) const override;

 private:
  const Plan& plan_;
  Servers& servers_;
};

}  // namespace psring::worker
