#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

void add_call(const ring::Cost& moved, Prediction& sum) {
  sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
  sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
}

std::map<Category, std::uint64_t> memory_formula(const Plan& plan, Shares shares) {
  const Layout& layout = plan.layout;
  const bool master = layout.parameter_type != DType::f32 && plan.optimizer.master_copy;
  const std::size_t state = plan.optimizer.rule->slots() + (master ? 1 : 0);
  const auto share = [](std::uint64_t bytes, std::size_t processes) { return processes == 0 ? 0 : bytes / processes; };
  return {{Category::parameters, share(layout.parameter_bytes(), shares.parameters)},
          {Category::gradients, share(layout.gradient_bytes(), shares.gradients)},
          {Category::optimizer, share(layout.trained_elements() * sizeof(float) * state, shares.optimizer)}};
}

void add_optimizer_state(const Plan& plan, std::size_t owners, Prediction& sum) {
  sum.worker_memory[Category::optimizer] +=
      memory_formula(plan, {.parameters = 0, .gradients = 0, .optimizer = owners})[Category::optimizer];
}

}  // namespace psring::worker
