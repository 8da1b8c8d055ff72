#pragma once

#include <memory>
#include <vector>

#include <psring/ring/bucketer.h>
#include <psring/ring/exposure.h>
#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {

/// The units in buckets of neighbours, as --bucket and --bucket-order say.
ring::Bucketer make_bucketer(const Plan& plan);

/// Gradients that are whole here, and leave in buckets while backward goes on (see ring::Bucketer). With several shard
/// groups, the ranges that this rank owns are then averaged over the replicas. Micro-batches add up locally.
class BucketedGradients final : public Gradients {
 public:
  /// `ownership`: the ranges of which this process needs the mean.
  BucketedGradients(const Plan& plan, const World& world, Workers& workers, Ownership ownership,
                    std::unique_ptr<Averaging> averaging);

  void begin_step(Step step) override;
  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step step, const Landed& landed) override;
  Elements owned(UnitId unit) override;
  std::vector<optim::StatePart> state() override { return averaging_->state(); }
  void predict(Prediction& sum) const override;

 private:
  void launch(std::size_t until);
  /// Waits for the next bucket's mean within the shard group, and sends the owned ranges on to the replicas.
  void take_next();

  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  const Ownership ownership_;
  const std::unique_ptr<Averaging> averaging_;
  WholeUnits gradients_;
  ring::Bucketer bucketer_;
  ring::Exposure exposure_;
  std::vector<ring::Work> works_;  ///< of this step's buckets, in the order of launch
  std::size_t taken_ = 0;          ///< buckets, from the first, that take_next has seen
};

}  // namespace psring::worker
