#include <algorithm>

#include <psring/worker/exchange/transient_units.h>

namespace psring::worker {

TransientUnits::TransientUnits(const Plan& plan, const World& world, Presence::Values values)
    : layout_(plan.layout),
      world_(world),
      values_(values),
      type_(are_parameters() ? layout_.parameter_type : layout_.gradient_type),
      own_(make_arena()),
      memory_(layout_.units.size()),
      staging_(layout_.units.size()) {}

/// Addresses of the arena take no memory until a unit uses them. There are at most as many gaps as units, and a gap
/// that is too small for a unit is smaller than the largest unit. So an arena of twice the number of units, each as
/// large as the largest, always has room.
std::unique_ptr<Arena> TransientUnits::make_arena() const {
  if (world_.device != nullptr || world_.arena != nullptr) return nullptr;
  std::size_t largest = 0;
  for (UnitId unit = 0; unit < layout_.units.size(); ++unit) largest = std::max(largest, bytes_of(unit));
  return std::make_unique<Arena>(2 * layout_.units.size() * (largest + Arena::kAlignment), Arena::Kind::local);
}

void TransientUnits::allocate(UnitId unit, Events::Source source) {
  const std::size_t bytes = bytes_of(unit);
  memory_[unit] = world_.buffer(bytes, Category::communication, own_ ? own_.get() : world_.arena);
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
  world_.events.instant(Presence{values_, static_cast<std::uint32_t>(unit), here, memory_[unit].size_bytes()}, source);
}

}  // namespace psring::worker
