#include <psring/worker/compressor.h>
#include <psring/worker/strategy/memory_formula.h>

namespace psring::worker {

std::map<Category, std::uint64_t> memory_formula(const Context& context, Shares shares) {
  const Layout& layout = context.layout;
  const bool master = layout.parameter_type != DType::f32 && context.optimizer.master_copy;
  const std::size_t state = context.optimizer.rule->slots() + (master ? 1 : 0);
  const auto cut = [](std::uint64_t of, std::size_t among) { return among == 0 ? 0 : of / among; };
  return {{Category::parameters, cut(layout.parameter_bytes(), shares.parameters)},
          {Category::gradients, cut(layout.gradient_bytes(), shares.gradients)},
          {Category::optimizer, cut(layout.trained_elements() * sizeof(float) * state, shares.optimizer)}};
}

std::map<Category, std::uint64_t> worker_memory(const Context& context, Shares shares, std::uint64_t communication,
                                                std::uint64_t staged) {
  std::map<Category, std::uint64_t> memory = memory_formula(context, shares);
  if (context.stages()) memory[Category::staging] = staged;
  memory[Category::parameters] += context.buffers.size_bytes();
  memory[Category::communication] = communication;
  if (context.compressor != nullptr) {
    memory[Category::optimizer] += context.compressor->residual_bytes();
    memory[Category::communication] += context.compressor->communication_bytes();
    if (context.stages()) memory[Category::staging] += context.compressor->encoded_bytes();
  }
  return memory;
}

}  // namespace psring::worker
