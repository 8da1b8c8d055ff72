#pragma once

#include <memory>
#include <vector>

#include <psring/common/device/arena.h>
#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// Memory for the parameters, or the gradients, of whole units that come and go during a step's passes, each unit by
/// itself. WholeUnits is the counterpart for units that stay. On a host without an arena that workers share, the units
/// use pages of an arena of this worker again: fresh pages cost more than the unit's messages.
class TransientUnits {
 public:
  /// REQUIRES: plan and world outlive it.
  TransientUnits(const Plan& plan, const World& world, Presence::Values values);

  /// Returns whether the unit has memory now.
  bool present(UnitId unit) const { return memory_[unit].size_bytes() > 0; }
  /// Returns the unit's values. REQUIRES: present(unit).
  Elements values(UnitId unit) { return memory_[unit].elements(type_); }
  /// Gives the unit memory, to which World::units refers from then on.
  void allocate(UnitId unit, Events::Source source = Events::Source::current());
  /// Takes the unit's memory away. REQUIRES: present(unit).
  void free(UnitId unit, Events::Source source = Events::Source::current());

 private:
  bool are_parameters() const { return values_ == Presence::Values::parameters; }
  std::size_t bytes_of(UnitId unit) const {
    return are_parameters() ? layout_.parameter_bytes(unit) : layout_.gradient_bytes(unit);
  }
  std::unique_ptr<Arena> make_arena() const;
  void report(UnitId unit, bool here, Events::Source source) const;

  const Layout& layout_;
  const World& world_;
  const Presence::Values values_;
  const DType type_;
  const std::unique_ptr<Arena> own_;  ///< null if a device or the world's arena has the units
  std::vector<Buffer> memory_;        ///< by unit; empty if the unit has none now
  std::vector<Buffer> staging_;       ///< the same
};

}  // namespace psring::worker
