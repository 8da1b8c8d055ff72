#pragma once

#include <span>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// A unit is acquired, or released: a pass is a list of these.
struct UnitEvent {
  UnitId unit;
  bool begins;
};

/// In the order in which the trainer calls. `layers`: of the pass, as Context has them.
std::vector<UnitEvent> forward_events(std::span<const Range> unit_layers);
std::vector<UnitEvent> backward_events(std::span<const Range> backward_layers);

}  // namespace psring::worker
