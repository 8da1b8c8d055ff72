#pragma once

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/servers/servers.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {

/// Every worker keeps all parameters; the servers update them (ps, ps-zero2). A push of a gradient asks for the new
/// values; a forward pass waits for the units that it reads.
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
