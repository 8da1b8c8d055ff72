#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// The workers that divide every unit among themselves: all workers, or with --shard-group (hybrid sharding, HSDP) each
/// group of Layout::owners workers. The i-th members of all groups own the same ranges and are replicas of each other:
/// they average their ranges of a gradient over the groups, then make the same update.
class ShardGroups {
 public:
  /// Throws bug if there is no group.
  ShardGroups(const Plan& plan, const World& world);

  /// The ranks of this worker's shard group, in the order of the layout's owners.
  ring::ProcessGroup& owners() const { return *owners_; }
  /// The ranks that own the same ranges as this one, one of each shard group; null if there is one group.
  ring::ProcessGroup* replicas() const { return replicas_.get(); }
  /// This rank saves its ranges in checkpoints: the first of the replicas does.
  bool saves() const { return replicas_ == nullptr || replicas_->rank() == 0; }

  /// The reduction within the group is done, so that its result may go to the replicas. On devices, which have one
  /// queue for both groups, all ranks must enqueue in one order: there the result goes on when three reductions are
  /// under way, whatever the time. `under_way`: reductions from this one on.
  bool may_average(ring::Work& work, std::size_t under_way) const {
    return on_device_ && replicas_ != nullptr ? under_way > 2 : work.done();
  }
  /// Starts to average this rank's range of a gradient over the replicas. Never waits. Replicas call it for the same
  /// ranges in the same order.
  void average(Elements owned);
  /// Advances the averages that are under way.
  void advance();
  /// On return all averages are complete. `wait`: waits for one operation, and counts the time.
  void drain(const std::function<void(ring::Work&)>& wait);

  /// Adds the bytes that averaging every trained unit moves at this rank in a step.
  void predict_averages(const Layout& layout, Prediction& sum) const;
  /// Accounts as ProcessGroup::account does.
  void account() const;
  /// Sums over all workers run in rank order. `accumulated`: gradients of several micro-batches are added up before the
  /// replicas average them.
  bool sums_in_rank_order(bool accumulated) const;

 private:
  const DType gradient_type_;
  const bool on_device_;
  std::unique_ptr<ring::ProcessGroup> own_;  ///< null if there is one group
  std::unique_ptr<ring::ProcessGroup> replicas_;
  ring::ProcessGroup* owners_;
  std::vector<ring::Work> works_;
};

}  // namespace psring::worker
