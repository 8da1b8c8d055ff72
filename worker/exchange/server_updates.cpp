#include <psring/common/proc/job.h>
#include <psring/worker/exchange/server_updates.h>

namespace psring::worker {

/// An update writes into a second buffer, which frozen units do not need. If the step has to be whole, the mean of all
/// units waits for its verdict.
void ServerUpdates::predict(Prediction& sum) const {
  const std::size_t servers = plan_.layout.owners;
  const OptimizerPlan& plan = plan_.optimizer;
  const std::uint64_t values = plan_.layout.trained_elements() * size_bytes(plan_.layout.parameter_type) / servers;
  const bool clips = plan.clip_norm > 0 && !plan_.consistency.each_push_updates;
  const bool whole = plan_.layout.pushes > 1 || clips || plan.loss_scaler.active() || plan.rule->layerwise();
  sum.server_memory = memory_formula(plan_, {servers, whole ? servers : 0, servers});
  sum.server_memory[Category::parameters] += values;
  const bool apart = plan_.layout.parameter_type != DType::f32 && plan.master_copy;
  if (plan_.job.server_device == "cuda" && !apart) sum.server_memory[Category::parameters] += values;
  if (plan_.remedy.keeps_answers()) sum.server_memory[Category::optimizer] += plan_.workers * values;
}

}  // namespace psring::worker
