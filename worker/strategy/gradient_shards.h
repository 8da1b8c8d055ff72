#pragma once

#include <functional>
#include <span>
#include <vector>

#include <psring/worker/strategy/gradient_window.h>

namespace psring::worker {

/// Gradients of which this process keeps its own range of each unit alone (stages 2 and 3 of workers among themselves).
/// Every micro-batch is reduced by itself, and added to what is owned.
class GradientShards {
 public:
  /// `wait`: how the owner waits.
  GradientShards(const Context& context, std::function<void(ring::Work&)> wait);

  void open(UnitId unit) { window_.open(unit); }
  /// The unit's gradient is complete: on its way to the owners.
  void reduce(UnitId unit, Micro micro);
  /// On return all are reduced.
  void drain() { window_.drain(); }

  Elements owned(UnitId unit) { return owned_[unit].elements(context_.layout.gradient_type); }

 private:
  struct Reduction {
    ring::Work work;
    bool first = true;
  };

  void take(UnitId unit, ConstElements whole);

  const Context& context_;
  const std::function<void(ring::Work&)> wait_;
  std::vector<Buffer> owned_;
  std::vector<Reduction> reductions_;  ///< by unit: the newest
  GradientWindow window_;
};

}  // namespace psring::worker
