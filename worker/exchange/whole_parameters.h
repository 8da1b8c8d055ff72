#pragma once

#include <functional>
#include <vector>

#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers.h>
#include <psring/worker/exchange/whole_units.h>
#include <psring/worker/exchange/workers.h>

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

/// Every worker keeps all parameters, and updates its own range of each (ZeRO stages 1 and 2). After an update, the
/// owners' ranges are all-gathered; a forward pass waits for the units that it reads.
class GatheredParameters final : public Parameters {
 public:
  /// `calls`: the units [begin, end) that one all-gather moves.
  GatheredParameters(const Plan& plan, const World& world, Workers& workers, std::vector<Range> calls);

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void updated() override;
  void quiesce() override;
  Elements owned(UnitId unit) override { return ownership_.of(unit, world_.units[unit].parameters); }
  void predict(Prediction& sum) const override;

 private:
  struct Gather {
    Range units;
    ring::Work work;
  };

  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  const Ownership ownership_;
  const std::vector<Range> calls_;  ///< in forward order: the first units are needed first
  WholeUnits parameters_;
  std::vector<Gather> gathers_;
};

/// Every worker keeps all parameters; the servers update them (ps, ps-zero2). Whoever pushes a gradient asks for the
/// new values; a forward pass waits for the units that it reads.
class PulledParameters final : public Parameters {
 public:
  PulledParameters(const Plan& plan, const World& world, Servers& servers);

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void quiesce() override;
  void refresh() override { pull_all(); }
  Elements owned(UnitId /*unit*/) override { return {}; }
  void predict(Prediction& sum) const override;

 private:
  void pull_all();

  const Plan& plan_;
  const World& world_;
  Servers& servers_;
  WholeUnits parameters_;
};

}  // namespace psring::worker
