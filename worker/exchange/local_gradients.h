#pragma once

#include <vector>

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {

/// Gradients that stay in this process. With n virtual workers it repeats the arithmetic of n workers: it adds their
/// gradients, one after the other, in rank order in f32, and multiplies by 1/n. Micro-batches are added up before that,
/// as workers with whole gradients do (--accumulate-at local), or after it, as owners of ranges do (owner).
class LocalGradients final : public Gradients {
 public:
  LocalGradients(const Plan& plan, const World& world);

  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step /*step*/, const Landed& /*landed*/) override {}
  Elements owned(UnitId unit) override { return sums_.empty() ? world_.units[unit].gradients : sum(0, unit); }
  void predict(Prediction& sum) const override;

 private:
  Elements sum(std::size_t micro, UnitId unit) { return sums_[micro][unit].elements(DType::f32); }
  void add_up(UnitId unit, Micro micro);

  const Plan& plan_;
  const World& world_;
  const bool at_owner_;
  WholeUnits gradients_;
  /// Sums over the virtual workers: by micro-batch, if owners add micro-batches up, and by unit.
  std::vector<std::vector<Buffer>> sums_;
};

}  // namespace psring::worker
