#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {

WholeUnits::WholeUnits(const Context& context) {
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const std::size_t bytes = context.layout.units[unit].elements * sizeof(float);
    buffers_.emplace_back(bytes, Category::parameters, context.memory, context.arena);
    context.units[unit].parameters = buffers_.back().as<float>();
    buffers_.emplace_back(bytes, Category::gradients, context.memory, context.arena);
    context.units[unit].gradients = buffers_.back().as<float>();
  }
}

void WholeUnits::initialise(const Context& context) {
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const std::span<float> values = context.units[unit].parameters;
    psring::initialise(context.layout.units[unit], {0, values.size()}, context.seed, values);
    if (context.initial) context.initial(unit, values);
  }
}

}  // namespace psring::worker
