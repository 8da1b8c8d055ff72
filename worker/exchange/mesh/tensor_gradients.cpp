#include <psring/common/proc/job.h>
#include <psring/worker/exchange/mesh/tensor_gradients.h>

namespace psring::worker {

TensorGradients::TensorGradients(const Plan& plan, const World& world, Workers& workers)
    : plan_(plan),
      world_(world),
      workers_(workers),
      gradients_(plan, world, WholeUnits::Values::gradients),
      exposure_(plan.job.link, true, world.clock) {}

ring::Cost TensorGradients::cost(std::size_t elements) const {
  return workers_.group().predict(ring::Collective::all_reduce, elements, {plan_.layout.gradient_type});
}

void TensorGradients::finish(Step /*step*/, const Landed& landed) {
  const Moment backward_ended = world_.clock.now();
  for (const UnitId unit : plan_.layout.trained()) {
    const auto topic = workers_.about({unit, unit + 1});
    for (const TensorLayout& tensor : plan_.layout.units[unit].tensors) {
      const Elements gradient = world_.units[unit].gradients.subspan(tensor.offset, tensor.spec.elements());
      exposure_.launched(cost(gradient.size()));
      ring::Work work = workers_.group().all_reduce(gradient, ring::ReduceOp::Kind::mean);
      workers_.wait(work);
    }
  }
  exposure_.end_step(backward_ended);
  landed({0, plan_.layout.units.size()});
}

void TensorGradients::predict(Prediction& sum) const {
  for (const UnitId unit : plan_.layout.trained())
    for (const TensorLayout& tensor : plan_.layout.units[unit].tensors) add_call(cost(tensor.spec.elements()), sum);
  sum.worker_memory[Category::gradients] += gradients_.all().size_bytes();
  sum.exposed_s = exposure_.of_a_step();
  sum.same_bits = workers_.group().sums_in_rank_order(ring::Collective::all_reduce, {plan_.layout.gradient_type});
}

}  // namespace psring::worker
