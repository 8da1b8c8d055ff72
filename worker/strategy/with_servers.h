#pragma once

#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// What strategies with servers share: the client, and the time it is waited for.
class WithServers : public Strategy {
 public:
  void begin_step(Step step) override { step_ = step; }
  /// The servers have it all.
  std::optional<std::vector<optim::StatePart>> state() override { return std::vector<optim::StatePart>(); }
  void wait_saved(std::uint64_t step) override;
  Nanoseconds waited() const override { return waited_; }
  /// The servers' own scale: their answers say of each step whether it was skipped.
  optim::LossScaler loss_scaler() override;

 protected:
  explicit WithServers(const Context& context);

  PsClient& client() const { return *context_.client; }
  UnitBuffers& buffers(UnitId unit) const { return context_.units[unit]; }
  /// The servers take the layout, and make the initial values, unless a file gives them: then worker 0 sends it.
  void open();
  void wait(UnitId unit, std::uint64_t version);
  void wait_acknowledged(UnitId unit);
  /// All gradients are pushed once a step, and so many bytes pulled.
  Prediction predict_step(std::uint64_t pulled) const;
  /// The bytes of servers that apply the optimizer.
  std::map<Category, std::uint64_t> server_memory() const;

  const Context context_;
  Step step_;
  ReadyUnits ready_;

 private:
  Nanoseconds waited_{0};
  optim::LossScaler scaler_;
  std::uint64_t steps_told_ = 0;  ///< to scaler_
};

}  // namespace psring::worker
