#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/workers/sharded_gradients.h>

namespace psring::worker {

ShardedGradients::ShardedGradients(const Plan& plan, const World& world, Workers& workers,
                                   std::unique_ptr<Averaging> averaging)
    : plan_(plan),
      workers_(workers),
      averaging_(std::move(averaging)),
      ownership_(plan.layout, workers.owners().rank()),
      window_(plan, world, [this](UnitId unit) {
        // Units land in the order in which their reductions began. Some reductions were taken early, in `ready`.
        if (!reductions_.empty() && reductions_.front().unit == unit) take_first();
      }) {
  Arena* const arena = workers.groups().replicas() == nullptr ? nullptr : world.arena;  // replicas read owned ranges
  for (UnitId unit = 0; unit < plan.layout.units.size(); ++unit)
    owned_.push_back(world.buffer(plan.layout.gradient_bytes(unit) / plan.layout.owners, Category::gradients, arena));
}

void ShardedGradients::ready(UnitId unit, Micro micro, const Landed& /*landed*/) {
  const Elements whole = window_.depart(unit);
  const auto topic = workers_.about({unit, unit + 1});
  reductions_.push_back({unit, micro, whole, averaging_->start({unit, unit + 1}, whole, micro.index)});
  while (!reductions_.empty() && workers_.groups().may_average(reductions_.front().work, reductions_.size()))
    take_first();
  workers_.groups().advance();
}

/// Waits until the oldest reduce-scatter has averaged its micro-batch's gradient, and adds the owned range of the mean
/// to the ranges of the micro-batches before. The whole gradient keeps its memory until the window closes, so that the
/// booked bytes do not depend on which worker was quick.
void ShardedGradients::take_first() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  workers_.wait(reduction.work);
  const Elements mine = owned(reduction.unit);
  const ConstElements reduced = ownership_.of(reduction.unit, reduction.whole);
  if (reduction.micro.index == 0)
    copy(reduced, mine);
  else
    add(mine, reduced);
  if (!reduction.micro.last) return;
  const auto topic = workers_.about({reduction.unit, reduction.unit + 1});
  workers_.groups().average(mine);
}

void ShardedGradients::finish(Step /*step*/, const Landed& landed) {
  window_.drain();
  workers_.groups().drain([this](ring::Work& work) { workers_.wait(work); });
  landed({0, plan_.layout.units.size()});
}

void ShardedGradients::predict(Prediction& sum) const {
  for (std::size_t micro = 0; micro < plan_.job.accumulate; ++micro)
    for (const UnitId unit : plan_.layout.trained()) averaging_->predict({unit, unit + 1}, sum);
  workers_.groups().predict_averages(plan_.layout, sum);
  sum.worker_memory[Category::gradients] += plan_.layout.gradient_bytes() / plan_.layout.owners;
  averaging_->predict_memory(sum);
  sum.same_bits = averaging_->sums_in_rank_order(plan_.job.accumulate > 1);
}

}  // namespace psring::worker
