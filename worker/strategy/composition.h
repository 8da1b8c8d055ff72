#pragma once

#include <memory>

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/ready_units.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// The parts of a strategy. Peers outlive the other parts, which may refer to them and to those above them.
struct Parts {
  std::unique_ptr<Peers> peers;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Gradients> gradients;
  std::unique_ptr<Updates> updates;
  std::unique_ptr<Tables> tables = nullptr;  ///< null: the model has no table
};

/// A strategy that is composed of parts. It calls them in the order of a step, and adds up their predictions.
class Composition final : public Strategy,
                          public Saving,
                          public Resuming,
                          public LossScaling,
                          public Pacing,
                          public Exchanging {
 public:
  /// REQUIRES: plan and world outlive it.
  Composition(const Plan& plan, const World& world, Parts parts);

  void start() override;
  void begin_step(Step step) override;
  void acquire(UnitId unit, Pass pass) override;
  void release(UnitId unit, Pass pass) override;
  void grad_ready(UnitId unit, Micro micro) override;
  void finish_step(Step step) override;
  void quiesce() override;
  Prediction predict() const override;
  Abilities abilities() override {
    return {.saving = this,
            .resuming = this,
            .scaling = this,
            .pacing = this,
            .exchanging = this,
            .tables = parts_.tables.get()};
  }

  std::vector<optim::StatePart> state() override;
  void wait_saved(std::uint64_t step) override { parts_.peers->wait_saved(step); }
  std::optional<Whole> whole_state() override;
  optim::LossScaler loss_scaler() override { return parts_.updates->loss_scaler(); }
  Step first() override { return parts_.peers->first(); }
  Step after(Step step) override;
  void leave() override;
  double staleness() override;
  Nanoseconds waited() const override {
    return parts_.peers->waited() + (parts_.tables ? parts_.tables->waited() : Nanoseconds{0});
  }
  bool shares_buffers() const override { return parts_.peers->shares_buffers(); }

 private:
  void predict_units_in_flight(Prediction& sum) const;

  const Plan& plan_;
  const World& world_;
  Parts parts_;
  ReadyUnits ready_;
  std::optional<Step> next_;  ///< the step that all parameters here are for; none before they are here
  Step step_;
  const Landed landed_ = [this](Range units) {
    world_.events.instant(GradientReady{units, true});
    parts_.updates->landed(units, step_);
  };
};

}  // namespace psring::worker
