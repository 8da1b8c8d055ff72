#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/gradient_window.h>
#include <psring/worker/exchange/ownership.h>

namespace psring::worker {

/// Gradients of which this process keeps its own range of each unit only (ZeRO stages 2 and 3 among workers). The
/// gradient of every micro-batch is reduce-scattered by itself, and added to the owned range; after the last, the owned
/// range is averaged over the replicas.
class ShardedGradients final : public Gradients {
 public:
  ShardedGradients(const Plan& plan, const World& world, Workers& workers, std::unique_ptr<Averaging> averaging);

  void begin_step(Step step) override { averaging_->begin_step(step); }
  void open(UnitId unit) override { window_.open(unit); }
  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step step, const Landed& landed) override;
  Elements owned(UnitId unit) override { return owned_[unit].elements(plan_.layout.gradient_type); }
  void predict(Prediction& sum) const override;
  std::unique_ptr<Holding> holding() const override { return window_.holding(); }

 private:
  struct Reduction {
    UnitId unit;
    Micro micro;
    Elements whole;
    ring::Work work;
  };
  void take_first();

  const Plan& plan_;
  Workers& workers_;
  const std::unique_ptr<Averaging> averaging_;
  const Ownership ownership_;
  std::vector<Buffer> owned_;         ///< by unit
  std::deque<Reduction> reductions_;  ///< under way, or complete and not yet taken; in order
  GradientWindow window_;
};

}  // namespace psring::worker
