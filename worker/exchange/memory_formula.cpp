#include <psring/optim/state_memory.h>
#include <psring/worker/exchange/memory_formula.h>

namespace psring::worker {

std::map<Category, std::uint64_t> memory_formula(const Plan& plan, Shares shares) {
  return memory_formula(plan, {plan.layout.elements(), plan.layout.trained_elements()}, shares);
}

std::map<Category, std::uint64_t> memory_formula(const Plan& plan, OwnedElements owned, Shares shares) {
  const Layout& layout = plan.layout;
  const bool master = layout.parameter_type != DType::f32 && plan.optimizer.master_copy;
  const optim::Optimizer& rule = *plan.optimizer.rule;
  const double slot = static_cast<double>(optim::slot_bytes(rule, kCut)) / kCut;  // a binary fraction: exact
  const double state = static_cast<double>(rule.slots()) * slot + (master ? sizeof(float) : 0);
  return memory_formula({.parameter_bytes = owned.all * size_bytes(layout.parameter_type),
                         .gradient_bytes = owned.trained * size_bytes(layout.gradient_type),
                         .trained = owned.trained,
                         .state_bytes = state},
                        shares);
}

std::map<Category, std::uint64_t> memory_formula(const ModelStates& states, Shares shares) {
  const auto share = [](std::uint64_t bytes, std::size_t processes) { return processes == 0 ? 0 : bytes / processes; };
  const auto state = static_cast<std::uint64_t>(static_cast<double>(states.trained) * states.state_bytes);
  return {{Category::parameters, share(states.parameter_bytes, shares.parameters)},
          {Category::gradients, share(states.gradient_bytes, shares.gradients)},
          {Category::optimizer, share(state, shares.optimizer)}};
}

void add_optimizer_state(const Plan& plan, std::size_t owners, Prediction& sum) {
  sum.worker_memory[Category::optimizer] +=
      memory_formula(plan, {.parameters = 0, .gradients = 0, .optimizer = owners})[Category::optimizer];
}

}  // namespace psring::worker
