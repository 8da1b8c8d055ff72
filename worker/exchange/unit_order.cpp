#include <algorithm>

#include <psring/worker/exchange/unit_order.h>

namespace psring::worker {

std::vector<UnitEvent> forward_events(std::span<const Range> unit_layers) {
  std::size_t layers = 0;
  for (const Range range : unit_layers) layers = std::max(layers, range.end);
  std::vector<UnitEvent> events;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (UnitId unit = 0; unit < unit_layers.size(); ++unit)
      if (unit_layers[unit].begin == layer && !unit_layers[unit].empty()) events.push_back({unit, true});
    for (UnitId unit = 0; unit < unit_layers.size(); ++unit)
      if (unit_layers[unit].end == layer + 1) events.push_back({unit, false});
  }
  return events;
}

/// Backward goes through the layers in reverse.
std::vector<UnitEvent> backward_events(std::span<const Range> backward_layers) {
  std::vector<UnitEvent> events = forward_events(backward_layers);
  std::reverse(events.begin(), events.end());
  for (UnitEvent& event : events) event.begins = !event.begins;
  return events;
}

}  // namespace psring::worker
