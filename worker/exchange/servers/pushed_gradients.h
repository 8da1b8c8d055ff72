#pragma once

#include <memory>

#include <psring/optim/device_applier.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers/servers.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {

/// The servers' answer to a push.
enum class Answer : std::uint8_t {
  nothing,     ///< besides the acknowledgement
  parameters,  ///< the unit's values after the update
  mean,        ///< the mean gradient: the optimizer runs on the workers
};

/// Gradients that are whole on this worker. Each is pushed as soon as it is complete, together with the request for the
/// answer. Micro-batches add up locally. If each push is an update (ssp, asp), a worker clips its gradients before it
/// pushes them, so that pushes wait for the end of backward; otherwise the servers clip the mean.
class PushedGradients final : public Gradients {
 public:
  PushedGradients(const Plan& plan, const World& world, Servers& servers, Answer answer);

  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step step, const Landed& landed) override;
  void wait_for_updates() override;
  Elements owned(UnitId unit) override { return world_.units[unit].gradients; }
  void predict(Prediction& sum) const override;

 private:
  bool clips() const { return plan_.consistency.each_push_updates && plan_.optimizer.clip_norm > 0; }
  void push(UnitId unit);
  void clip_and_push();

  const Plan& plan_;
  const World& world_;
  Servers& servers_;
  const Answer answer_;
  WholeUnits gradients_;
  std::unique_ptr<optim::DeviceApplier> applier_;  ///< sums up squares of gradients that a device holds
};

/// Gradients that have memory only until their servers have them (ps-zero2, ps-zero3): every micro-batch is pushed by
/// itself. With Answer::parameters, the unit is pulled once its last micro-batch is on its way. REQUIRES: all arguments
/// outlive the result.
std::unique_ptr<Gradients> make_windowed_pushes(const Plan& plan, const World& world, Servers& servers, Answer answer);

}  // namespace psring::worker
