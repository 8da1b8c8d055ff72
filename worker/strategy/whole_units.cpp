#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {

WholeUnits::WholeUnits(const Context& context, Gradients gradients)
    : layout_(context.layout),
      parameters_(layout_.parameter_bytes(), Category::parameters, context.memory, context.arena),
      gradients_(gradients == Gradients::none ? 0 : layout_.gradient_bytes(), Category::gradients, context.memory,
                 context.arena),
      parameter_values_(parameters_.elements(layout_.parameter_type)),
      gradient_values_(gradients_.elements(layout_.gradient_type)) {
  std::size_t begin = 0;
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const std::size_t elements = layout_.units[unit].elements;
    context.units[unit].parameters = parameter_values_.subspan(begin, elements);
    if (gradients == Gradients::whole) context.units[unit].gradients = gradient_values_.subspan(begin, elements);
    begin += elements;
  }
}

void WholeUnits::initialise(const Context& context) {
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const Elements values = context.units[unit].parameters;
    context.initialise(unit, {0, values.size()}, values);
  }
}

Elements WholeUnits::cut(Elements values, Range units) const {
  std::size_t begin = 0;
  for (UnitId unit = 0; unit < units.begin; ++unit) begin += layout_.units[unit].elements;
  std::size_t elements = 0;
  for (UnitId unit = units.begin; unit < units.end; ++unit) elements += layout_.units[unit].elements;
  return values.subspan(begin, elements);
}

}  // namespace psring::worker
