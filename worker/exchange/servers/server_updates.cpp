#include <psring/common/proc/job.h>
#include <psring/worker/exchange/memory_formula.h>
#include <psring/worker/exchange/servers/servers.h>

namespace psring::worker {
namespace {

class ServerUpdates final : public Updates {
 public:
  ServerUpdates(const Plan& plan, Servers& servers) : plan_(plan), servers_(servers) {}

  void finish(Step /*step*/) override {}
  optim::LossScaler loss_scaler() override { return servers_.loss_scaler(); }
  std::vector<optim::StatePart> state() override { return {}; }
  /// An update writes into a second buffer, which frozen units do not need. If the step has to be whole, the mean of
  /// all units waits for its verdict.
  void predict(Prediction& sum) const override {
    const OptimizerPlan& plan = plan_.optimizer;
    const bool clips = plan.clip_norm > 0 && !plan_.consistency.each_push_updates;
    const bool whole = plan_.layout.pushes > 1 || clips || plan.loss_scaler.active() || plan.rule->layerwise();
    const bool apart = plan_.layout.parameter_type != DType::f32 && plan.master_copy;
    const auto booked = [&](OwnedElements owned) {
      const std::uint64_t values = owned.trained * size_bytes(plan_.layout.parameter_type);
      auto memory = memory_formula(plan_, owned, {.gradients = whole ? std::size_t{1} : 0});
      memory[Category::parameters] += values;
      if (plan_.job.server_device == "cuda" && !apart) memory[Category::parameters] += values;
      if (plan_.remedy.keeps_answers()) memory[Category::optimizer] += plan_.workers * values;
      return memory;
    };
    set_server_memory(plan_, booked, sum);
  }

 private:
  const Plan& plan_;
  Servers& servers_;
};

}  // namespace

std::unique_ptr<Updates> make_server_updates(const Plan& plan, Servers& servers) {
  return std::make_unique<ServerUpdates>(plan, servers);
}

}  // namespace psring::worker
