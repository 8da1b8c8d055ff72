#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Gradients of which this process keeps its own range of each unit alone (stages 2 and 3): a unit's whole gradient
/// has memory from its backward pass until it is reduced. Every micro-batch is reduced by itself, and added to what is
/// owned. At most two units' whole gradients are there at once, but for one that is held over others' passes.
class GradientShards {
 public:
  /// `wait`: how the owner waits.
  GradientShards(const Context& context, std::function<void(ring::Work&)> wait);

  /// Memory for a unit's gradient, before its backward pass; waits for those that are on their way.
  void open(UnitId unit);
  /// The unit's gradient is complete: on its way to the owners.
  void reduce(UnitId unit, Micro micro);
  /// On return all are reduced.
  void drain();

  std::span<float> owned(UnitId unit) { return owned_[unit].as<float>(); }
  /// What whole gradients take, by the same rule, from when units are opened and reduced.
  class Replay {
   public:
    explicit Replay(const Layout& layout) : layout_(layout) {}
    void open(UnitId unit);
    void reduce(UnitId unit) { flights_.push_back(unit); }
    std::size_t bytes() const { return bytes_; }

   private:
    std::size_t of(UnitId unit) const { return layout_.units[unit].elements * sizeof(float); }

    const Layout& layout_;
    std::size_t bytes_ = 0;
    std::deque<UnitId> flights_;
  };

 private:
  struct Flight {
    UnitId unit;
    bool first;
    ring::Work work;
  };

  void land();

  const Context& context_;
  const std::function<void(ring::Work&)> wait_;
  std::vector<Buffer> owned_;
  std::vector<Buffer> whole_;  ///< by unit; empty where it has none now
  std::deque<Flight> flights_;
};

}  // namespace psring::worker
