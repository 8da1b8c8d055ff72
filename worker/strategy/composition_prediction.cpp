#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/unit_order.h>
#include <psring/worker/state/compressor.h>
#include <psring/worker/state/error_feedback.h>
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
  auto gradients = parts_.gradients->holding();
  const Holding* const held_back = gradients.get();  // a unit's gradient may leave later than its parameters
  if (gradients) parts.push_back(std::move(gradients));
  if (parts.empty()) return;
  std::uint64_t most = 0;
  std::uint64_t most_staged = 0;
  const auto replay = [&](Pass pass, bool last, const std::vector<UnitEvent>& events) {
    for (const auto& [unit, begins] : events)
      for (const auto& part : parts) {  // parameters arrive before gradients of other units leave to make room
        const bool stays = last && part.get() == held_back && !plan_.held_back.empty() && plan_.held_back[unit];
        if (begins)
          part->acquire(unit, pass);
        else if (!stays)
          part->release(unit, pass);
        std::uint64_t bytes = 0;
        std::uint64_t staged = 0;
        for (const auto& each : parts) {
          bytes += each->bytes();
          staged += each->staged_bytes();
        }
        most = std::max(most, bytes);
        most_staged = std::max(most_staged, staged);
      }
  };
  for (std::size_t i = 0; i < plan_.passes.size(); ++i)
    if (plan_.passes[i] == Pass::forward)
      replay(Pass::forward, false, forward_events(plan_.unit_layers));
    else
      replay(Pass::backward, i + 1 == plan_.passes.size(), backward_events(plan_.backward_layers));
  sum.worker_memory[Category::communication] += most;
  if (world_.stages()) sum.worker_memory[Category::staging] += most_staged;
}

}  // namespace psring::worker
