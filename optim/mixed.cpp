#include <psring/optim/mixed.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

Optimizer::State part_of(const Optimizer::State& state, std::size_t slots, Range range) {
  Optimizer::State part;
  for (std::size_t s = 0; s < slots; ++s) part.slot[s] = state.slot[s].subspan(range.begin, range.size());
  return part;
}

}  // namespace

void apply(const Optimizer& rule, const Update& update, const MixedRange& range) {
  for_each_widened(range.gradient, [&](std::span<const float> gradient, Range part) {
    const Optimizer::State state = part_of(range.state, rule.slots(), part);
    const Elements out = range.out.part(part);
    if (!range.master.empty()) {
      const std::span<float> master = range.master.subspan(part.begin, part.size());
      if (rule.layerwise()) return rule.apply(update, master, gradient, state, out.as<float>());
      rule.apply(update, master, gradient, state, master);
      return narrow(master, out);
    }
    const ConstElements parameters = range.parameters.part(part);
    if (parameters.type() == DType::f32 && out.type() == DType::f32)
      return rule.apply(update, parameters.as<float>(), gradient, state, out.as<float>());
    for_each_widened(parameters, [&](std::span<const float> values, Range block) {
      float after[kElementsBlock];
      const std::span<float> result(after, block.size());
      rule.apply(update, values, gradient.subspan(block.begin, block.size()), part_of(state, rule.slots(), block),
                 result);
      narrow(result, out.part(block));
    });
  });
}

void add_square_sum(ConstElements values, ExactSum& sum) {
  for_each_widened(values, [&](std::span<const float> part, Range) { add_square_sum(part, sum); });
}

}  // namespace psring::optim
