#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/bench/predict/planned_worker.h>

namespace psring::bench {

/// One action of a worker that pushes gradients to servers and pulls parameters.
struct WorkerAction {
  enum class Kind : std::uint8_t {
    compute,
    push,
    pull,
    await_values,  ///< of the unit's last pull
    await_pushes,  ///< until the servers have acknowledged the unit's last push
  };
  Kind kind = Kind::compute;
  std::size_t unit = 0;
  double seconds = 0;         ///< of computing
  std::size_t micro = 0;      ///< of a push
  bool pulls = false;         ///< of a push: it also asks for the values after this step's update
  bool after_update = false;  ///< of a pull: it asks for those values, not for those before
};

/// Returns what a worker asks its link to the servers for in a step, as the strategy's own code does while the link
/// answers at once. Every worker does the same in every step.
std::vector<WorkerAction> worker_actions(const TimedJob& job, const ComputePace& pace);

}  // namespace psring::bench
