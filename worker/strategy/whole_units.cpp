#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {

WholeUnits::WholeUnits(const Context& context, Gradients gradients)
    : layout_(context.layout),
      offsets_(layout_.offsets()),
      parameters_(context.buffer(layout_.parameter_bytes(), Category::parameters)),
      gradients_(context.buffer(gradients == Gradients::none ? 0 : layout_.gradient_bytes(), Category::gradients)),
      parameter_values_(parameters_.elements(layout_.parameter_type)),
      gradient_values_(gradients_.elements(layout_.gradient_type)),
      staged_parameters_(context.staged_buffer(parameters_.size_bytes())),
      staged_gradients_(gradients == Gradients::answered ? context.staged_buffer(gradients_.size_bytes())
                                                         : context.staged_gradients(gradients_.size_bytes())) {
  const Elements staged_parameters = staged_parameters_.elements(layout_.parameter_type);
  const Elements staged_gradients = staged_gradients_.elements(layout_.gradient_type);
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const UnitLayout& of = layout_.units[unit];
    UnitBuffers& buffers = context.units[unit];
    buffers.parameters = parameter_values_.subspan(offsets_[unit], of.elements);
    if (context.stages()) buffers.staged_parameters = staged_parameters.subspan(offsets_[unit], of.elements);
    if (gradients == Gradients::none || !of.trained) continue;
    buffers.gradients = gradient_values_.subspan(offsets_[unit], of.elements);
    if (!staged_gradients.empty()) buffers.staged_gradients = staged_gradients.subspan(offsets_[unit], of.elements);
  }
}

void WholeUnits::initialise(const Context& context) {
  for (UnitId unit = 0; unit < context.units.size(); ++unit) {
    const Elements values = context.units[unit].parameters;
    context.initialise(unit, {0, values.size()}, values);
  }
}

Elements WholeUnits::cut(Elements values, Range units) const {
  const auto trained_before = [&](UnitId end) {
    std::size_t elements = 0;
    for (UnitId unit = 0; unit < end; ++unit) elements += layout_.trained_elements(unit);
    return elements;
  };
  const std::size_t begin = trained_before(units.begin);
  return values.subspan(begin, trained_before(units.end) - begin);
}

}  // namespace psring::worker
