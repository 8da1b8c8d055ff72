#include <algorithm>
#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/compressor.h>
#include <psring/worker/error_feedback.h>
#include <psring/worker/exchange/unit_order.h>
#include <psring/worker/strategy/composition.h>

namespace psring::worker {

Composition::Composition(const Plan& plan, const World& world, Parts parts)
    : plan_(plan), world_(world), parts_(std::move(parts)), ready_(plan.layout) {}

void Composition::start() {
  parts_.parameters->start();
  parts_.updates->start();
  next_ = Step{plan_.first_step};
}

void Composition::begin_step(Step step) {
  step_ = step;
  parts_.parameters->begin_step();
  parts_.peers->begin_step(step);
  parts_.gradients->begin_step(step);
}

void Composition::acquire(UnitId unit, Pass pass) {
  parts_.parameters->acquire(unit, pass);
  if (pass == Pass::backward) parts_.gradients->open(unit);
}

void Composition::release(UnitId unit, Pass pass) { parts_.parameters->release(unit, pass); }

void Composition::grad_ready(UnitId unit, Micro micro) {
  if (micro.last && micro.last_worker) ready_.add(unit);
  parts_.gradients->ready(unit, micro, [this](Range units) { parts_.updates->landed(units, step_); });
}

void Composition::finish_step(Step step) {
  ready_.finish(step);
  parts_.parameters->end_passes();
  parts_.gradients->finish(step, [this](Range units) { parts_.updates->landed(units, step_); });
  parts_.updates->finish(step);
  parts_.parameters->updated();
  next_ = Step{step.index + 1};
  parts_.peers->end_step(step);
}

Step Composition::after(Step step) {
  const Step next{step.index + 1};
  if (plan_.consistency.backups == 0) return next;
  parts_.gradients->wait_for_updates();
  return parts_.peers->furthest(next);
}

void Composition::leave() {
  if (!plan_.consistency.each_push_updates) return;
  quiesce();
  parts_.peers->leave();
  parts_.parameters->refresh();
}

void Composition::quiesce() {
  parts_.parameters->quiesce();
  parts_.peers->quiesce();
}

std::vector<optim::StatePart> Composition::state() {
  std::vector<optim::StatePart> all = parts_.updates->state();
  for (optim::StatePart& part : parts_.gradients->state()) all.push_back(std::move(part));
  return all;
}

std::optional<Resuming::Whole> Composition::whole_state() {
  if (!next_) return std::nullopt;
  auto state = parts_.updates->whole_state();
  if (!state) return std::nullopt;
  return Whole{*next_, std::move(*state)};
}

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
