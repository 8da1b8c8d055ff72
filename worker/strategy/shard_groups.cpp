#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/worker/strategy/shard_groups.h>

namespace psring::worker {

ShardGroups::ShardGroups(const Context& context)
    : gradient_type_(context.layout.gradient_type), on_device_(context.device != nullptr), owners_(context.group) {
  const std::span<const std::size_t> of = context.shard_groups;
  if (of.empty()) return;
  const auto rank = static_cast<std::uint32_t>(context.rank);
  const std::size_t mine = of[rank];
  const auto place = static_cast<std::uint32_t>(std::count(of.begin(), of.begin() + rank, mine));
  if (std::all_of(of.begin(), of.end(), [&](std::size_t group) { return group == mine; })) return;
  own_ = context.group->split(static_cast<std::uint32_t>(mine), rank);
  replicas_ = context.group->split(place, rank);
  owners_ = own_.get();
  check(owners_->size() == context.layout.owners, "a layout for {} owners, and {} in a shard group",
        context.layout.owners, owners_->size());
}

void ShardGroups::average(Elements owned) {
  if (replicas_ != nullptr) works_.push_back(replicas_->all_reduce(owned, ring::ReduceOp::Kind::mean));
}

void ShardGroups::advance() {
  std::erase_if(works_, [](ring::Work& work) { return work.done(); });
}

void ShardGroups::drain(const std::function<void(ring::Work&)>& wait) {
  for (ring::Work& work : works_) wait(work);
  works_.clear();
}

void ShardGroups::account() const {
  if (replicas_ == nullptr) return;
  own_->account();
  replicas_->account();
}

bool ShardGroups::sums_in_rank_order(bool added_up) const {
  if (replicas_ == nullptr) return owners_->sums_in_rank_order(ring::Collective::reduce_scatter, {gradient_type_});
  return owners_->size() == 1 && !added_up &&
         replicas_->sums_in_rank_order(ring::Collective::all_reduce, {gradient_type_});
}

}  // namespace psring::worker
