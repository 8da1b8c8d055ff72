#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring {
struct JobOptions;
}  // namespace psring

namespace psring::worker {

/// Whole parameters of units that a pass has, or will have soon: stage 3. A unit is fetched before a pass acquires it,
/// --prefetch units ahead, and dropped when the pass releases it, or with --reshard-after-forward off after the
/// backward pass, where that has it.
class ParameterWindow {
 public:
  struct Source {
    /// A unit's values are on their way into this memory.
    std::function<void(UnitId, Elements)> fetch;
    /// On return they are there, and others need them no longer.
    std::function<void(UnitId)> wait;
    /// On return nothing is at their memory but what a device's queue has. Empty: that is so after `wait`.
    std::function<void(UnitId)> leave = {};
  };

  ParameterWindow(const Context& context, const JobOptions& job, Source source);

  void acquire(UnitId unit, Pass pass);
  /// `training`: a backward pass follows, or this is it.
  void release(UnitId unit, Pass pass, bool training);
  /// Before values change.
  void drop_all();

  /// The most bytes of whole parameters, and of whole gradients (GradientWindow), over a step, replayed.
  std::uint64_t most_bytes(bool with_gradients = true) const;
  /// The units that a step fetches, each as often as it does.
  std::vector<UnitId> fetches() const;

 private:
  std::span<const UnitId> wanted(UnitId unit, Pass pass) const;
  bool goes(UnitId unit, Pass released) const;
  void drop(UnitId unit);

  const Context& context_;
  const std::size_t micros_;
  const std::size_t prefetch_;
  const bool reshard_;
  const Source source_;
  std::vector<Buffer> whole_;                 ///< by unit; empty where it is not here
  std::vector<Buffer> staged_;                ///< alike
  std::array<std::vector<UnitId>, 2> order_;  ///< in which a pass, forward or backward, acquires
};

}  // namespace psring::worker
