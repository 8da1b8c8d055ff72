#include <psring/worker/exchange/transient_units.h>

namespace psring::worker {

TransientUnits::TransientUnits(const Plan& plan, const World& world, Presence::Values values)
    : layout_(plan.layout),
      world_(world),
      values_(values),
      type_(are_parameters() ? layout_.parameter_type : layout_.gradient_type),
      memory_(layout_.units.size()),
      staging_(layout_.units.size()) {}

void TransientUnits::allocate(UnitId unit, Events::Source source) {
  const std::size_t bytes = are_parameters() ? layout_.parameter_bytes(unit) : layout_.gradient_bytes(unit);
  memory_[unit] = world_.buffer(bytes, Category::communication);
  staging_[unit] = are_parameters() ? world_.staging(bytes) : world_.gradient_staging(bytes);
  UnitBuffers& buffers = world_.units[unit];
  (are_parameters() ? buffers.parameters : buffers.gradients) = values(unit);
  (are_parameters() ? buffers.staged_parameters : buffers.staged_gradients) = staging_[unit].elements(type_);
  report(unit, true, source);
}

void TransientUnits::free(UnitId unit, Events::Source source) {
  report(unit, false, source);
  memory_[unit] = Buffer();
  staging_[unit] = Buffer();
  UnitBuffers& buffers = world_.units[unit];
  (are_parameters() ? buffers.parameters : buffers.gradients) = {};
}

void TransientUnits::report(UnitId unit, bool here, Events::Source source) const {
  world_.events.detail(Presence{values_, static_cast<std::uint32_t>(unit), here, memory_[unit].size_bytes()}, source);
}

}  // namespace psring::worker
