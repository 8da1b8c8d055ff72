#include <psring/common/device/arena.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model_part.h>

namespace psring::worker {

StagePlan plan_of_stage(const TrainSetup& setup) {
  const JobOptions& job = setup.job();
  return plan_stage(parse_pipeline_schedule(job.pipeline_schedule), setup.stage(), job.pipeline, job.accumulate);
}

std::vector<Pass> passes_of(const StagePlan& plan) {
  std::vector<Pass> passes;
  for (const StageAction& action : plan) {
    if (action.kind == StageAction::Kind::forward) passes.push_back(Pass::forward);
    if (action.kind == StageAction::Kind::backward) passes.push_back(Pass::backward);
  }
  return passes;
}

std::vector<bool> held_back(const TrainSetup& setup) {
  std::vector<bool> units(setup.layout().units.size(), false);
  for (const SharedTensor& tensor : setup.shared_tensors()) units[tensor.unit] = true;
  return units;
}

Network::Options options_of_network(const TrainSetup& setup) {
  const JobOptions& job = setup.job();
  const Layout& layout = setup.layout();
  return {.max_batch = (job.batch_per_worker() + job.accumulate - 1) / job.accumulate,
          .types = {layout.parameter_type, layout.parameter_type, layout.gradient_type},
          .recomputed = job.activation_checkpointing == "unit" ? setup.flat().runs() : std::vector<Range>(),
          .wanted = setup.flat().wanted(),
          .in_flight = most_in_flight(plan_of_stage(setup)),
          .input_gradient = setup.flat().input_is_trained(),
          .first_layer = setup.whole().stages[setup.stage()].begin};
}

std::size_t loss_bytes(const TrainSetup& setup) {
  if (setup.tensor_part().whole() || setup.model().loss == nullptr) return 0;
  const std::size_t samples = options_of_network(setup).max_batch;
  const LossExchange loss = setup.model().loss->tensor_sums(samples * setup.model().rows_per_sample);
  return loss.largest_f32 * sizeof(float) + loss.sum_f64 * sizeof(double);
}

StageLinks::Sizes sizes_of_stage(const TrainSetup& setup) {
  return StageLinks::sizes_of(setup.model(), setup.flat(), setup.stage() + 1 == setup.job().pipeline,
                              options_of_network(setup));
}

std::size_t tensor_bytes(const TrainSetup& setup) {
  if (setup.tensor_part().whole()) return 0;
  return HostNetwork::booked_bytes(setup.model(), options_of_network(setup)) + loss_bytes(setup) +
         2 * Arena::kAlignment;
}

std::size_t pipeline_bytes(const TrainSetup& setup) { return StageLinks::buffer_bytes(sizes_of_stage(setup)); }

}  // namespace psring::worker
