#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Who cuts units among themselves: all workers, or with --shard-group each group of as many as the layout has owners.
/// Then the i-th of every group own the same ranges, and are replicas of each other: what they own of a gradient
/// becomes the mean of all groups' before they update it, all alike.
class ShardGroups {
 public:
  /// A collective of Context::group, which outlives it.
  explicit ShardGroups(const Context& context);

  /// The ranks of this group, in the order of the layout's owners.
  ring::ProcessGroup& owners() const { return *owners_; }
  /// Those who own what this rank owns, one of each group; null where one group is all.
  ring::ProcessGroup* replicas() const { return replicas_.get(); }
  /// Does this rank save what it owns? Of replicas the first does.
  bool saves() const { return replicas_ == nullptr || replicas_->rank() == 0; }

  /// May what was reduced within the group go on? Once that is done; but where devices have one queue for both groups,
  /// when so many have begun after it, as all ranks have to call them in one order. `under_way`: counted from it.
  bool comes_next(ring::Work& work, std::size_t under_way) const {
    return on_device_ && replicas_ != nullptr ? under_way > 2 : work.done();
  }
  /// What this rank owns is reduced within its group: on its way to be the mean of all groups'. Never waits. Owners of
  /// the same ranges call it for them in the same order.
  void average(Elements owned);
  /// Goes on with what is under way.
  void advance();
  /// On return all of it is there; `wait`: how the owner waits.
  void drain(const std::function<void(ring::Work&)>& wait);

  /// As ProcessGroup::account.
  void account() const;
  /// Are sums over all groups in rank order? `added_up`: gradients of several micro-batches are, before replicas
  /// average them.
  bool sums_in_rank_order(bool added_up) const;

 private:
  const DType gradient_type_;
  const bool on_device_;
  std::unique_ptr<ring::ProcessGroup> own_;  ///< null where one group is all
  std::unique_ptr<ring::ProcessGroup> replicas_;
  ring::ProcessGroup* owners_;
  std::vector<ring::Work> works_;
};

}  // namespace psring::worker
