#pragma once

#include <span>
#include <vector>

#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// A pass begins to use a unit, or ends to: it acquires the unit, or releases it.
struct UnitEvent {
  UnitId unit;
  bool begins;
};

/// The events of a pass, in the order in which the trainer calls: layers as Plan::unit_layers and backward_layers say.
std::vector<UnitEvent> forward_events(std::span<const Range> unit_layers);
std::vector<UnitEvent> backward_events(std::span<const Range> backward_layers);

}  // namespace psring::worker
