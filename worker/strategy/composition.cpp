#include <utility>

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
  parts_.gradients->ready(unit, micro, landed_);
}

void Composition::finish_step(Step step) {
  ready_.finish(step);
  parts_.parameters->end_passes();
  parts_.gradients->finish(step, landed_);
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

}  // namespace psring::worker
