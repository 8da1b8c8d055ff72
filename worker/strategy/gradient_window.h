#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Whole gradients of units that have memory from their backward pass until they have left: at most two at once, one
/// that is computed and one on its way, but for a unit that is held over others' passes.
class GradientWindow {
 public:
  /// `land`: waits until the unit's gradient is no longer needed here, and takes of it what is kept.
  GradientWindow(const Context& context, std::function<void(UnitId, ConstElements)> land);

  /// Memory for a unit's gradient, before its backward pass; waits for those that are on their way. Of a unit that is
  /// not trained: nothing.
  void open(UnitId unit);
  /// It is complete, and on its way from here on.
  Elements depart(UnitId unit);
  /// On return all have left.
  void drain();

  /// What they take, by the same rule, from when units are opened and depart.
  class Replay {
   public:
    explicit Replay(const Layout& layout) : layout_(layout) {}
    void open(UnitId unit);
    void depart(UnitId unit) {
      if (layout_.units[unit].trained) flights_.push_back(unit);
    }
    std::size_t bytes() const { return bytes_; }
    /// The most over so many backward passes, one after the other. `backward_layers`: as Context has them.
    static std::size_t most_bytes(const Layout& layout, std::span<const Range> backward_layers, std::size_t passes);

   private:
    std::size_t of(UnitId unit) const { return layout_.gradient_bytes(unit); }

    const Layout& layout_;
    std::size_t bytes_ = 0;
    std::deque<UnitId> flights_;
  };

 private:
  Elements values(UnitId unit) { return whole_[unit].elements(context_.layout.gradient_type); }
  void land_first();

  const Context& context_;
  const std::function<void(UnitId, ConstElements)> land_;
  std::vector<Buffer> whole_;   ///< by unit; empty where it has none now
  std::vector<Buffer> staged_;  ///< alike
  std::deque<UnitId> flights_;
};

}  // namespace psring::worker
