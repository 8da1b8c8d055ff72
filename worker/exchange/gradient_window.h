#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <psring/worker/exchange/parts.h>

namespace psring::worker {

/// Memory for whole gradients of units that have it only from their backward pass until their gradient has left: at
/// most two units at once, one that is computed and one on its way, besides a unit that is held over others' passes.
/// So a slow peer cannot unbound memory.
class GradientWindow {
 public:
  /// `land`: waits until the unit's gradient is no longer needed here, and takes from it what is to be kept.
  GradientWindow(const Plan& plan, const World& world, std::function<void(UnitId, ConstElements)> land);

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
  Elements values(UnitId unit) { return whole_[unit].elements(plan_.layout.gradient_type); }
  void land_first();
  void report(UnitId unit, bool here) const;

  const Plan& plan_;
  const World& world_;
  const std::function<void(UnitId, ConstElements)> land_;
  std::vector<Buffer> whole_;     ///< by unit; empty if the unit has none now
  std::vector<Buffer> staging_;   ///< the same
  std::deque<UnitId> in_flight_;  ///< units whose gradients are on their way, oldest first
};

}  // namespace psring::worker
