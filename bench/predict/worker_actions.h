#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/bench/predict/planned_worker.h>

namespace psring::bench {

/// One action of a worker that exchanges values with servers. Tables are numbered behind the units.
struct WorkerAction {
  enum class Kind : std::uint8_t {
    compute,
    push,
    pull,
    await_values,  ///< of the unit's last pull
    await_pushes,  ///< until the servers have acknowledged the unit's last push
    transfer,      ///< begins a collective
    await_transfer,
  };
  Kind kind = Kind::compute;
  std::size_t unit = 0;
  double seconds = 0;         ///< of computing
  std::size_t micro = 0;      ///< of a push
  bool pulls = false;         ///< of a push: it also asks for the values after this step's update
  bool after_update = false;  ///< of a pull: it asks for those values, not for those before
  std::size_t later = 0;      ///< of await_values, await_transfer: newer ones, which need not be there
  // A transfer. Each worker sends its bytes to the next host in one frame, on cards that carry rows as well; all have
  // the result as long after the last frame as rounds take in turn.
  double bytes = 0;
  double result_s = 0;
};

/// Returns what a worker asks its links to servers and workers for in a step, as the strategy's own code does while
/// these answer at once. Every worker does the same in every step.
std::vector<WorkerAction> worker_actions(const TimedJob& job, const ComputePace& pace);

}  // namespace psring::bench
