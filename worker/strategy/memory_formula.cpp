#include <psring/worker/strategy/memory_formula.h>

namespace psring::worker {

std::map<Category, std::uint64_t> memory_formula(const Context& context, Shares shares) {
  const std::uint64_t bytes = context.layout.elements() * sizeof(float);
  const auto cut = [](std::uint64_t of, std::size_t among) { return among == 0 ? 0 : of / among; };
  return {{Category::parameters, cut(bytes, shares.parameters)},
          {Category::gradients, cut(bytes, shares.gradients)},
          {Category::optimizer, cut(bytes * context.optimizer.rule->slots(), shares.optimizer)}};
}

std::map<Category, std::uint64_t> worker_memory(const Context& context, Shares shares, std::uint64_t communication) {
  std::map<Category, std::uint64_t> memory = memory_formula(context, shares);
  memory[Category::parameters] += context.buffers.size_bytes();
  memory[Category::communication] = communication;
  return memory;
}

}  // namespace psring::worker
