#pragma once

#include <deque>
#include <functional>
#include <memory>

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/transient_units.h>

namespace psring::worker {

/// Memory for whole gradients of units that need it only from their backward pass until their gradient has left. At
/// most two units have it at once, one that is computed and one that is in flight, besides a unit that is held over the
/// passes of other units. So a slow peer cannot make memory grow without bound.
class GradientWindow {
 public:
  /// `land`: waits until the unit's gradient is no longer needed here, and keeps the range of it that this worker still
  /// needs.
  GradientWindow(const Plan& plan, const World& world, std::function<void(UnitId)> land);

  /// Memory for a unit's gradient, before its backward pass; waits for gradients that are on their way. Nothing for a
  /// frozen unit.
  void open(UnitId unit);
  /// The unit's gradient is complete, and on its way from here on.
  Elements depart(UnitId unit);
  /// On return all gradients have left.
  void drain();
  /// The bytes that the window holds during a step's passes.
  std::unique_ptr<Holding> holding() const;

 private:
  void land_first();

  const Plan& plan_;
  const World& world_;
  const std::function<void(UnitId)> land_;
  TransientUnits whole_;
  std::deque<UnitId> in_flight_;  ///< units whose gradients are on their way, oldest first
};

}  // namespace psring::worker
