#include <psring/common/proc/job.h>
#include <psring/worker/exchange/servers/server_updates.h>

namespace psring::worker {

/// An update writes into a second buffer, which frozen units do not need. If the step has to be whole, the mean of all
/// units waits for its verdict.
void ServerUpdates::predict(Prediction& sum) const {
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

}  // namespace psring::worker
