#pragma once

#include <cstdint>
#include <deque>

#include <psring/optim/loss_scaler.h>

namespace psring::worker {

/// Ends a run that does not learn because nearly all of its last steps were skipped: their gradients were not finite. A
/// dynamic loss scale that begins too high is halved in a few steps. At most 48 steps lead from the largest scale to
/// the smallest, and this class allows twice that number.
class SkipWatch {
 public:
  static constexpr std::size_t kSteps = 100;
  static constexpr std::uint64_t kMostSkipped = 95;

  /// Called when `step` begins and `scaler` knows the outcome of all earlier steps; any number of times in a step.
  /// Throws data if more than kMostSkipped of the last kSteps steps were skipped.
  void look(std::uint64_t step, const optim::LossScaler& scaler);

 private:
  std::uint64_t next_ = 0;             ///< the first step that is not looked at yet
  std::deque<std::uint64_t> skipped_;  ///< when each of the last steps began, the number of those skipped before
};

}  // namespace psring::worker
