#pragma once

#include <psring/ring/exposure.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/whole_units.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

/// Gradients that are whole here, and are averaged after backward: one all-reduce per tensor, one after the other. The
/// way that one would try first, and the baseline that buckets and overlap are measured against.
class TensorGradients final : public Gradients {
 public:
  TensorGradients(const Plan& plan, const World& world, Workers& workers);

  void begin_step(Step /*step*/) override { exposure_.begin_step(); }
  void ready(UnitId /*unit*/, Micro /*micro*/, const Landed& /*landed*/) override {}
  void finish(Step step, const Landed& landed) override;
  Elements owned(UnitId unit) override { return world_.units[unit].gradients; }
  void predict(Prediction& sum) const override;

 private:
  ring::Cost cost(std::size_t elements) const;

  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  WholeUnits gradients_;
  ring::Exposure exposure_;
};

}  // namespace psring::worker
