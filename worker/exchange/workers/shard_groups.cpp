#include <algorithm>
#include <map>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/workers/shard_groups.h>

namespace psring::worker {

ShardGroups::ShardGroups(const Plan& plan, const World& world)
    : gradient_type_(plan.layout.gradient_type),
      on_device_(world.device != nullptr && planned(world.device) == nullptr),
      owners_(world.group) {
  check(world.group != nullptr, "data-parallel workers need a group");
  const std::span<const std::size_t> groups = plan.place.shard_groups;
  if (groups.empty()) return;
  if (std::all_of(groups.begin(), groups.end(), [&](std::size_t group) { return group == groups[0]; })) return;
  std::map<std::size_t, std::size_t> members;  // counted so far, by group
  std::vector<std::size_t> places;
  for (const std::size_t group : groups) places.push_back(members[group]++);
  own_ = world.group->split(groups);
  replicas_ = world.group->split(places);
  owners_ = own_.get();
  check(owners_->size() == plan.layout.owners, "a layout for {} owners, and {} in a shard group", plan.layout.owners,
        owners_->size());
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

void ShardGroups::predict_averages(const Layout& layout, Prediction& sum) const {
  if (replicas_ == nullptr) return;
  for (const UnitId unit : layout.trained())
    add_call(replicas_->predict(ring::Collective::all_reduce, layout.owned(unit, 0), {layout.gradient_type}), sum);
}

void ShardGroups::account() const {
  if (replicas_ == nullptr) return;
  own_->account();
  replicas_->account();
}

bool ShardGroups::sums_in_rank_order(bool accumulated) const {
  if (replicas_ == nullptr) return owners_->sums_in_rank_order(ring::Collective::reduce_scatter, {gradient_type_});
  return owners_->size() == 1 && !accumulated &&
         replicas_->sums_in_rank_order(ring::Collective::all_reduce, {gradient_type_});
}

}  // namespace psring::worker
