#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/compressor.h>
#include <psring/worker/error_feedback.h>
#include <psring/worker/exchange/unit_order.h>
#include <psring/worker/strategy/composition.h>

namespace psring::worker {

Prediction Composition::predict() const {
  Prediction sum{.worker_memory = {{Category::parameters, world_.buffers.size_bytes()},
                                   {Category::gradients, 0},
                                   {Category::optimizer, 0},
                                   {Category::communication, 0}}};
  if (world_.stages()) sum.worker_memory[Category::staging] = 0;
  parts_.peers->predict(sum);
  parts_.gradients->predict(sum);
  parts_.parameters->predict(sum);
  parts_.updates->predict(sum);
  predict_units_in_flight(sum);
  if (world_.feedback != nullptr) sum.worker_memory[Category::optimizer] += world_.feedback->size_bytes();
  if (const Compressor* compressor = world_.compressor) {
    sum.worker_memory[Category::communication] += compressor->communication_bytes();
    if (world_.stages()) sum.worker_memory[Category::staging] += compressor->encoded_bytes();
  }
  return sum;
}

/// Replays a step's passes: parameters and gradients that come and go are at their peaks at different moments.
void Composition::predict_units_in_flight(Prediction& sum) const {
  std::vector<std::unique_ptr<Holding>> parts;
  if (auto holding = parts_.parameters->holding()) parts.push_back(std::move(holding));
  if (auto holding = parts_.gradients->holding()) parts.push_back(std::move(holding));
  if (parts.empty()) return;
  std::uint64_t most = 0;
  std::uint64_t most_staged = 0;
  const auto replay = [&](Pass pass, const std::vector<UnitEvent>& events) {
    for (const auto& [unit, begins] : events) {
      std::uint64_t bytes = 0;
      std::uint64_t staged = 0;
      for (const auto& part : parts) {
        begins ? part->acquire(unit, pass) : part->release(unit, pass);
        bytes += part->bytes();
        staged += part->staged_bytes();
      }
      most = std::max(most, bytes);
      most_staged = std::max(most_staged, staged);
    }
  };
  for (std::size_t micro = 0; micro < plan_.job.accumulate; ++micro) {
    replay(Pass::forward, forward_events(plan_.unit_layers));
    replay(Pass::backward, backward_events(plan_.backward_layers));
  }
  sum.worker_memory[Category::communication] += most;
  if (world_.stages()) sum.worker_memory[Category::staging] += most_staged;
}

}  // namespace psring::worker
