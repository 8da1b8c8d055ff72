#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/workers/bucketed_gradients.h>

namespace psring::worker {
namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

}  // namespace

ring::Bucketer make_bucketer(const Plan& plan) {
  std::vector<std::size_t> bytes;
  for (UnitId unit = 0; unit < plan.layout.units.size(); ++unit) bytes.push_back(plan.layout.gradient_bytes(unit));
  return {bytes, plan.job.bucket_bytes, kFirstBucketBytes,
          plan.job.bucket_order == "forward" ? ring::BucketOrder::forward : ring::BucketOrder::reverse};
}

BucketedGradients::BucketedGradients(const Plan& plan, const World& world, Workers& workers, Ownership ownership,
                                     std::unique_ptr<Averaging> averaging)
    : plan_(plan),
      world_(world),
      workers_(workers),
      ownership_(ownership),
      averaging_(std::move(averaging)),
      gradients_(plan, world, WholeUnits::Values::gradients),
      bucketer_(make_bucketer(plan)),
      exposure_(plan.job.link, false, world.clock) {}

void BucketedGradients::begin_step(Step step) {
  averaging_->begin_step(step);
  bucketer_.begin_step();
  exposure_.begin_step();
  works_.clear();
  taken_ = 0;
}

void BucketedGradients::ready(UnitId unit, Micro micro, const Landed& /*landed*/) {
  if (!micro.last) return;
  const std::size_t ready = bucketer_.ready(unit);
  if (!plan_.job.overlap) return;
  launch(ready);
  while (taken_ < works_.size() && workers_.groups().may_average(works_[taken_], works_.size() - taken_)) take_next();
  for (std::size_t i = taken_; i < works_.size(); ++i) works_[i].done();  // advances the reductions in flight
  workers_.groups().advance();
}

void BucketedGradients::launch(std::size_t until) {
  while (works_.size() < until) {
    const Range bucket = bucketer_.buckets()[works_.size()];
    if (const auto cost = averaging_->cost(bucket)) exposure_.launched(*cost);
    const auto topic = workers_.about(bucket);
    works_.push_back(averaging_->start(bucket, gradients_.trained(bucket), 0));
  }
}

/// The owned ranges of a bucket's units do not lie together: each goes to the replicas by itself.
void BucketedGradients::take_next() {
  workers_.wait(works_[taken_]);
  const Range bucket = bucketer_.buckets()[taken_++];
  for (UnitId unit = bucket.begin; unit < bucket.end; ++unit) {
    const auto topic = workers_.about({unit, unit + 1});
    if (plan_.layout.units[unit].trained) workers_.groups().average(owned(unit));
  }
}

/// With one shard group, each bucket lands as soon as it is here, while later ones are still on their way.
void BucketedGradients::finish(Step /*step*/, const Landed& landed) {
  const Moment backward_ended = world_.clock.now();
  const std::vector<Range>& buckets = bucketer_.buckets();
  launch(buckets.size());
  exposure_.end_step(backward_ended);
  const bool replicated = workers_.groups().replicas() != nullptr;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (i == taken_) take_next();
    if (!replicated) landed(buckets[i]);
  }
  if (!replicated) return;
  workers_.groups().drain([this](ring::Work& work) { workers_.wait(work); });
  for (const Range bucket : buckets) landed(bucket);
}

Elements BucketedGradients::owned(UnitId unit) { return ownership_.of(unit, world_.units[unit].gradients); }

void BucketedGradients::predict(Prediction& sum) const {
  for (const Range bucket : bucketer_.buckets()) averaging_->predict(bucket, sum);
  workers_.groups().predict_averages(plan_.layout, sum);
  sum.worker_memory[Category::gradients] += gradients_.all().size_bytes();
  averaging_->predict_memory(sum);
  sum.same_bits = averaging_->sums_in_rank_order(false);
  sum.exposed_s = exposure_.of_a_step();
}

}  // namespace psring::worker
