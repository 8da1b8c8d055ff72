#pragma once

#include <vector>

#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/whole_units.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

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

}  // namespace psring::worker
