#pragma once

#include <functional>

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/whole_units.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

/// Writes the initial values of all units, which lie whole in World::units.
void initialise_whole(const Plan& plan, const World& world);

/// Every worker keeps all parameters, and updates them all.
class WholeParameters final : public Parameters {
 public:
  /// Brings a unit up to date before it is read.
  using BeforeUse = std::function<void(UnitId)>;

  /// `workers`: rank 0 makes the initial values, and broadcasts them; null: every process makes them. `before_use`:
  /// called before a forward pass reads a unit, and for all units in quiesce; empty: units are always up to date.
  WholeParameters(const Plan& plan, const World& world, Workers* workers = nullptr, BeforeUse before_use = {});

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void quiesce() override;
  Elements owned(UnitId unit) override { return world_.units[unit].parameters; }
  void predict(Prediction& sum) const override;
  /// The parameters of all units, one after the other.
  Elements all() const { return parameters_.all(); }

 private:
  const Plan& plan_;
  const World& world_;
  Workers* const workers_;
  const BeforeUse before_use_;
  WholeUnits parameters_;
};

}  // namespace psring::worker
