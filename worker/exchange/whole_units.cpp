#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {
namespace {

bool are_parameters(WholeUnits::Values values) { return values == WholeUnits::Values::parameters; }

std::size_t bytes_of(const Layout& layout, WholeUnits::Values values) {
  return are_parameters(values) ? layout.parameter_bytes() : layout.gradient_bytes();
}

Buffer make_staging(const World& world, std::size_t bytes, WholeUnits::Values values) {
  return values == WholeUnits::Values::gradients ? world.gradient_staging(bytes) : world.staging(bytes);
}

}  // namespace

WholeUnits::WholeUnits(const Plan& plan, const World& world, Values values)
    : layout_(plan.layout),
      memory_(
          world.buffer(bytes_of(layout_, values), are_parameters(values) ? Category::parameters : Category::gradients)),
      values_(memory_.elements(are_parameters(values) ? layout_.parameter_type : layout_.gradient_type)),
      staging_(make_staging(world, memory_.size_bytes(), values)) {
  const Elements staged = staging_.elements(values_.type());
  const std::vector<std::size_t> offsets = layout_.offsets();
  for (UnitId unit = 0; unit < world.units.size(); ++unit) {
    const UnitLayout& of = layout_.units[unit];
    if (!are_parameters(values) && !of.trained) continue;
    UnitBuffers& buffers = world.units[unit];
    (are_parameters(values) ? buffers.parameters : buffers.gradients) = values_.subspan(offsets[unit], of.elements);
    if (staged.empty()) continue;
    (are_parameters(values) ? buffers.staged_parameters : buffers.staged_gradients) =
        staged.subspan(offsets[unit], of.elements);
  }
}

Elements WholeUnits::trained(Range units) const {
  return values_.subspan(trained_elements(layout_, {0, units.begin}), trained_elements(layout_, units));
}

}  // namespace psring::worker
