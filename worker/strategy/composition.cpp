#include <utility>

#include <psring/worker/strategy/composition.h>

namespace psring::worker {

Composition::Composition(const Plan& plan, const World& world, Parts parts)
    : plan_(plan), world_(world), parts_(std::move(parts)), ready_(plan.layout) {}

void Composition::start() {
  parts_.parameters->start();
  parts_.updates->start();
  if (parts_.tables) parts_.tables->start();
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
  if (parts_.tables) parts_.tables->begin_updates();
  parts_.updates->finish(step);
  parts_.parameters->updated();
  if (parts_.tables) parts_.tables->finish(step);
  next_ = Step{step.index + 1};
  parts_.peers->end_step(step);
}

void Composition::quiesce() {
  parts_.parameters->quiesce();
  if (parts_.tables) parts_.tables->quiesce();
  parts_.peers->quiesce();
}

}  // namespace psring::worker
