#include <psring/common/proc/job.h>
#include <psring/ring/exposure.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

/// Gradients that are whole here, and are averaged after backward: one all-reduce per tensor, one after the other. The
/// way that one would try first, and the baseline that buckets and overlap are measured against.
class TensorGradients final : public Gradients {
 public:
  TensorGradients(const Plan& plan, const World& world, Workers& workers)
      : plan_(plan),
        world_(world),
        workers_(workers),
        gradients_(plan, world, WholeUnits::Values::gradients),
        exposure_(plan.job.link, true, world.clock) {}

  void begin_step(Step /*step*/) override { exposure_.begin_step(); }
  void ready(UnitId /*unit*/, Micro /*micro*/, const Landed& /*landed*/) override {}
  void finish(Step step, const Landed& landed) override;
  Elements owned(UnitId unit) override { return world_.units[unit].gradients; }
  void predict(Prediction& sum) const override;

 private:
  ring::Cost cost(std::size_t elements) const {
    return workers_.group().predict(ring::Collective::all_reduce, elements, {plan_.layout.gradient_type});
  }

  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  WholeUnits gradients_;
  ring::Exposure exposure_;
};

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

std::unique_ptr<Strategy> make_ddp_naive(const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = std::make_unique<WholeParameters>(plan, world, workers.get());
  parts.gradients = std::make_unique<TensorGradients>(plan, world, *workers);
  parts.updates = make_local_updates(plan, world, *parts.parameters, *parts.gradients);
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_ddp_naive(Registry<StrategyKind>& registry) {
  add_strategy(registry, "ddp-naive", "workers average gradients, one all-reduce a tensor after backward",
               {.ring = true, .whole = true, .on_device = true, .make = make_ddp_naive});
}

}  // namespace psring::worker
