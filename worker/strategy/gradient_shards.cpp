#include <algorithm>
#include <utility>

#include <psring/worker/strategy/gradient_shards.h>

namespace psring::worker {

GradientShards::GradientShards(const Context& context, std::function<void(ring::Work&)> wait)
    : context_(context),
      wait_(std::move(wait)),
      reductions_(context.layout.units.size()),
      window_(context, [this](UnitId unit, ConstElements whole) { take(unit, whole); }) {
  for (UnitId unit = 0; unit < context.layout.units.size(); ++unit)
    owned_.emplace_back(context.layout.gradient_bytes(unit) / context.layout.owners, Category::gradients,
                        context.memory);
}

void GradientShards::reduce(UnitId unit, Micro micro) {
  const Partition partition = context_.layout.partition(unit);
  ring::Parts parts;
  for (std::size_t owner = 0; owner < partition.owners(); ++owner) parts.push_back({partition.range(owner)});
  reductions_[unit] = {context_.group->reduce_scatter(window_.depart(unit), parts, ring::ReduceOp::Kind::mean),
                       micro.index == 0};
}

void GradientShards::take(UnitId unit, ConstElements whole) {
  wait_(reductions_[unit].work);
  const ConstElements reduced = whole.part(context_.layout.partition(unit).range(context_.rank));
  if (reductions_[unit].first)
    copy(reduced, owned(unit));
  else
    add(owned(unit), reduced);
}

}  // namespace psring::worker
