#include <algorithm>
#include <utility>

#include <psring/worker/strategy/gradient_shards.h>

namespace psring::worker {

GradientShards::GradientShards(const Context& context, ShardGroups& groups, MeanScatter& scatter,
                               std::function<void(ring::Work&)> wait)
    : context_(context),
      groups_(groups),
      scatter_(scatter),
      wait_(std::move(wait)),
      window_(context, [this](UnitId unit, ConstElements) { take_until_gone(unit); }) {
  Arena* const arena = groups.replicas() == nullptr ? nullptr : context.arena;  // where replicas reach it
  for (UnitId unit = 0; unit < context.layout.units.size(); ++unit)
    owned_.push_back(
        context.buffer(context.layout.gradient_bytes(unit) / context.layout.owners, Category::gradients, arena));
}

void GradientShards::reduce(UnitId unit, Micro micro) {
  const Elements whole = window_.depart(unit);
  reductions_.push_back({unit, micro, whole, scatter_.start({unit, unit + 1}, whole, micro.index)});
  while (!reductions_.empty() && groups_.comes_next(reductions_.front().work, reductions_.size())) take_first();
  groups_.advance();
}

/// Its memory stays until the window closes, so that what is booked does not depend on who was quick.
void GradientShards::take_first() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  wait_(reduction.work);
  const Elements mine = owned(reduction.unit);
  const ConstElements reduced =
      reduction.whole.part(context_.layout.partition(reduction.unit).range(groups_.owners().rank()));
  if (reduction.micro.index == 0)
    copy(reduced, mine);
  else
    add(mine, reduced);
  if (reduction.micro.last) groups_.average(mine);
}

void GradientShards::take_until_gone(UnitId unit) {
  while (std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& each) { return each.unit == unit; }))
    take_first();
}

void GradientShards::drain() {
  window_.drain();
  groups_.drain(wait_);
}

}  // namespace psring::worker
