#pragma once

#include <cstdint>
#include <deque>

#include <psring/optim/loss_scaler.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/network.h>

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

/// Returns what may help where values are not finite.
const char* not_finite_help(const Layout& layout);

/// Throws data for a loss that is not finite: names the step, the first unit whose output is not finite, and says
/// whether the unit's parameters are finite. REQUIRES: the network has just gone forward.
[[noreturn]] void fail_not_finite(Step step, const Plan& plan, const World& world, const FlatModel& flat,
                                  const Network& network);

}  // namespace psring::worker
