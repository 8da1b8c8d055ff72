#include <psring/common/base/error.h>
#include <psring/optim/norm.h>
#include <psring/optim/updater.h>
#include <psring/worker/strategy/local_optimizer.h>

namespace psring::worker {

LocalOptimizer::LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger)
    : plan_(plan), layout_(layout), state_(layout.units.size()) {
  for (UnitId unit = 0; unit < layout.units.size(); ++unit)
    for (std::size_t slot = 0; slot < plan.rule->slots(); ++slot)
      state_[unit][slot] = Buffer(layout.units[unit].elements * sizeof(float), Category::optimizer, ledger);
}

void LocalOptimizer::update(UnitId unit, Step step, UnitBuffers buffers) {
  check(!whole_step(), "clipping needs the whole step");
  apply(unit, step, 1, buffers);
}

void LocalOptimizer::update_all(Step step, std::span<const UnitBuffers> units) {
  float scale = 1;
  if (plan_.clip_norm > 0) {
    optim::ExactSum sum;
    for (const UnitBuffers& unit : units) optim::add_square_sum(unit.gradients, sum);
    scale = optim::clip_scale(sum, plan_.clip_norm);
  }
  for (UnitId unit = 0; unit < units.size(); ++unit) apply(unit, step, scale, units[unit]);
}

void LocalOptimizer::apply(UnitId unit, Step step, float gradient_scale, UnitBuffers buffers) {
  optim::Optimizer::State state;
  for (std::size_t slot = 0; slot < plan_.rule->slots(); ++slot) state.slot[slot] = state_[unit][slot].as<float>();
  const optim::Update update{step.index + 1, plan_.schedule->lr(plan_.lr, step.index), gradient_scale};
  optim::update_unit(*plan_.rule, update, layout_.units[unit], buffers.parameters, buffers.gradients, state,
                     buffers.parameters);
}

}  // namespace psring::worker
