#pragma once

#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// Parameters, or gradients, of all units, whole, for as long as this object lives. Trained units lie one after the
/// other, so that neighbours can move together; frozen ones come after them, and have no gradients.
class WholeUnits {
 public:
  enum class Values : std::uint8_t {
    parameters,
    gradients,
    answered_gradients,  ///< gradients whose mean the servers return: staged even if a compressor encodes them
  };
  /// Fills in the parameters or gradients of World::units.
  WholeUnits(const Plan& plan, const World& world, Values values);

  /// Returns the values of all units.
  Elements all() const { return values_; }
  /// Returns the values of the trained units among [begin, end).
  Elements trained(Range units) const;

 private:
  const Layout& layout_;
  Buffer memory_;
  const Elements values_;
  Buffer staging_;
};

}  // namespace psring::worker
