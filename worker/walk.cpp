#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/walk.h>

namespace psring::worker {

Walk::Walk(const Plan& plan, const World& world, const FlatModel& flat, Network& network, Strategy& strategy,
           SharedTensors* shared)
    : plan_(plan),
      world_(world),
      flat_(flat),
      network_(network),
      strategy_(strategy),
      shared_(shared),
      tables_(strategy.abilities().tables),
      binding_(flat) {}

void Walk::go(Pass pass, Micro micro, const std::function<void(std::size_t layer)>& visit) {
  const bool forward = pass == Pass::forward;
  const Range layers{forward ? 0 : flat_.first_trained_layer(), flat_.layers()};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t layer = forward ? i : layers.end - 1 - i;
    acquire(layer, pass);
    visit(layer);
    release(layer, pass);
    if (!forward) hand_over(layer, micro);
  }
}

/// Returns the unit's layers from its first to its last, as far as the pass goes.
Range Walk::layers_of(UnitId unit, Pass pass) const {
  if (pass == Pass::backward) return flat_.backward_layers(unit);
  const auto layers = flat_.layers_of(unit);
  return {layers.front(), layers.back() + 1};
}

void Walk::acquire(std::size_t layer, Pass pass) {
  if (const auto table = flat_.table_of(layer); table && pass == Pass::forward && tables_ != nullptr) {
    const Events::Span span(world_.events, {.name = "acquire rows", .waits = Activity::Waits::perhaps});
    tables_->acquire(*table);
  }
  const UnitId unit = flat_.unit_of(layer);
  if (unit == kNoUnit) return;
  const Range layers = layers_of(unit, pass);
  if (layer != (pass == Pass::forward ? layers.begin : layers.end - 1)) return;
  const Events::Span span(
      world_.events, {.name = "acquire", .unit = static_cast<std::uint32_t>(unit), .waits = Activity::Waits::perhaps});
  strategy_.acquire(unit, pass);
  binding_.bind_parameters(unit, world_.units[unit].parameters);
  if (pass == Pass::forward || !flat_.trained(unit)) return;
  binding_.bind_gradients(unit, world_.units[unit].gradients);
  if (world_.units[unit].each_micro_alone) binding_.reset_fresh(unit);
}

void Walk::release(std::size_t layer, Pass pass) {
  const UnitId unit = flat_.unit_of(layer);
  if (unit == kNoUnit) return;
  const Range layers = layers_of(unit, pass);
  if (layer == (pass == Pass::forward ? layers.end - 1 : layers.begin)) strategy_.release(unit, pass);
}

/// The unit's gradient is complete once backward is through with the unit's first layer.
void Walk::hand_over(std::size_t layer, Micro micro) {
  if (const auto table = flat_.table_of(layer); table && micro.last && tables_ != nullptr) tables_->grad_ready(*table);
  const UnitId unit = flat_.unit_of(layer);
  if (unit == kNoUnit || !flat_.trained(unit) || layer != flat_.layers_of(unit).front()) return;
  binding_.clear_unwritten(unit);
  if (shared_ != nullptr && shared_->in_unit(unit)) {
    shared_->add_up(unit, micro);
    if (micro.last) return;
  }
  world_.events.instant(GradientReady{{unit, unit + 1}});
  strategy_.grad_ready(unit, micro);
}

void Walk::hand_over_shared(Micro micro) {
  for (UnitId unit = flat_.units(); shared_ != nullptr && unit-- > 0;) {
    if (!shared_->in_unit(unit)) continue;
    world_.events.instant(GradientReady{{unit, unit + 1}});
    strategy_.grad_ready(unit, micro);
  }
}

Activity Walk::activity(const char* name, std::size_t layer) const {
  const UnitId unit = flat_.unit_of(layer);
  return {.name = name,
          .unit = unit == kNoUnit ? kNone : static_cast<std::uint32_t>(unit),
          .layer = static_cast<std::uint32_t>(layer)};
}

std::string Walk::layer_in(std::size_t layer, const char* pass) const {
  const UnitId unit = flat_.unit_of(layer);
  const std::string in_unit = unit == kNoUnit ? "" : fmt::format(" (unit '{}')", plan_.layout.units[unit].name);
  return fmt::format("layer {}{} in {}", layer, in_unit, pass);
}

void Walk::forward_layer(std::size_t layer, const char* name, bool training,
                         std::span<const std::span<float>> buffers) {
  const Events::Span span(world_.events, activity(name, layer));
  call_extension([&] { return layer_in(layer, "forward"); },
                 [&] { network_.forward_layer(layer, binding_.parameters(layer), training, buffers); });
}

void Walk::backward_layer(std::size_t layer) {
  const Events::Span span(world_.events, activity("backward", layer));
  call_extension([&] { return layer_in(layer, "backward"); },
                 [&] { network_.backward_layer(layer, binding_.parameters(layer), binding_.gradients(layer)); });
}

}  // namespace psring::worker
