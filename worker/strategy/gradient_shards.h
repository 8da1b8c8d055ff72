#pragma once

#include <deque>
#include <functional>
#include <vector>

#include <psring/worker/strategy/gradient_window.h>
#include <psring/worker/strategy/mean_scatter.h>
#include <psring/worker/strategy/shard_groups.h>

namespace psring::worker {

/// Gradients of which this process keeps its own range of each unit alone (stages 2 and 3 of workers among themselves).
/// Every micro-batch is reduced by itself, and added to what is owned; after the last that goes to the replicas.
class GradientShards {
 public:
  /// `scatter`: among the owners of a group. `wait`: how the owner waits.
  GradientShards(const Context& context, ShardGroups& groups, MeanScatter& scatter,
                 std::function<void(ring::Work&)> wait);

  void open(UnitId unit) { window_.open(unit); }
  /// The unit's gradient is complete: on its way to the owners. Never waits.
  void reduce(UnitId unit, Micro micro);
  /// On return all are reduced.
  void drain();

  Elements owned(UnitId unit) { return owned_[unit].elements(context_.layout.gradient_type); }

 private:
  struct Reduction {
    UnitId unit;
    Micro micro;
    ConstElements whole;
    ring::Work work;
  };

  void take_first();
  void take_until_gone(UnitId unit);

  const Context& context_;
  ShardGroups& groups_;
  MeanScatter& scatter_;
  const std::function<void(ring::Work&)> wait_;
  std::vector<Buffer> owned_;
  std::deque<Reduction> reductions_;  ///< what is not taken yet, in order
  GradientWindow window_;
};

}  // namespace psring::worker
