#include <psring/optim/updater.h>
#include <psring/worker/exchange/servers/pushed_gradients.h>

namespace psring::worker {

PushedGradients::PushedGradients(const Plan& plan, const World& world, Servers& servers, Answer answer)
    : plan_(plan),
      world_(world),
      servers_(servers),
      answer_(answer),
      gradients_(plan, world,
                 answer == Answer::mean ? WholeUnits::Values::answered_gradients : WholeUnits::Values::gradients) {
  if (clips() && world.device != nullptr) applier_ = optim::make_device_applier(*world.device);
}

void PushedGradients::ready(UnitId unit, Micro micro, const Landed& /*landed*/) {
  if (micro.last && !clips()) push(unit);
}

/// Pushes the gradient, for this worker or its whole host; all workers of the host ask for the answer.
void PushedGradients::push(UnitId unit) {
  const UnitBuffers& buffers = world_.units[unit];
  const Elements into = answer_ == Answer::mean ? buffers.gradients : buffers.parameters;
  servers_.host_sum().add(unit, buffers.gradients, [this, unit, into, step = servers_.step()] {
    if (servers_.host_sum().this_worker_pushes())
      servers_.link().push_pull(unit, step, world_.units[unit].gradients, into);
    else
      servers_.link().pull(unit, step + 1, into, false);
  });
}

void PushedGradients::clip_and_push() {
  optim::ExactSum sum;
  std::vector<ConstElements> gradients;
  for (const UnitId unit : plan_.layout.trained()) gradients.push_back(world_.units[unit].gradients);
  optim::add_square_sums(gradients, sum, applier_.get());
  const float scale = optim::clip_scale(sum, plan_.optimizer.clip_norm, 1);
  for (const UnitId unit : plan_.layout.trained()) {
    if (scale < 1) multiply(world_.units[unit].gradients, scale);
    push(unit);
  }
}

void PushedGradients::finish(Step /*step*/, const Landed& /*landed*/) {
  if (clips()) clip_and_push();
  servers_.host_sum().wait_all();
}

void PushedGradients::wait_for_updates() {
  for (const UnitId unit : plan_.layout.trained()) servers_.link().wait(unit, servers_.step());
}

void PushedGradients::predict(Prediction& sum) const {
  servers_.predict_pushes(sum);
  const std::uint64_t bytes = gradients_.all().size_bytes();
  sum.worker_memory[Category::gradients] += bytes;
  if (answer_ == Answer::mean) servers_.predict_pulls(plan_.layout.trained(), plan_.layout.gradient_type, sum);
  if (world_.stages() && (answer_ == Answer::mean || world_.compressor == nullptr))
    sum.worker_memory[Category::staging] += bytes;
}

}  // namespace psring::worker
