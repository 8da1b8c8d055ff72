#pragma once

#include <memory>

#include <psring/worker/exchange/gradient_window.h>
#include <psring/worker/exchange/servers/pushed_gradients.h>

namespace psring::worker {

/// Gradients that have memory only until their servers have them (ps-zero2, ps-zero3): every micro-batch is pushed by
/// itself. With Answer::parameters, the unit is pulled once its last micro-batch is on its way.
class WindowedPushes final : public Gradients {
 public:
  WindowedPushes(const Plan& plan, const World& world, Servers& servers, Answer answer);

  void open(UnitId unit) override { window_.open(unit); }
  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step /*step*/, const Landed& /*landed*/) override { window_.drain(); }
  Elements owned(UnitId /*unit*/) override { return {}; }
  void predict(Prediction& sum) const override { servers_.predict_pushes(sum); }
  std::unique_ptr<Holding> holding() const override { return window_.holding(); }

 private:
  const World& world_;
  Servers& servers_;
  const Answer answer_;
  GradientWindow window_;
};

}  // namespace psring::worker
