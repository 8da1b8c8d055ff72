#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <psring/bench/cost/timed_exchange.h>

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

/// Writes down what a worker does in a step while TimedWalk walks through the step: every worker does the same in every
/// step. Covers all stages of parameter servers.
class WorkerActions final : public TimedExchange {
 public:
  explicit WorkerActions(const TimedJob& job);

  const std::vector<WorkerAction>& all() const { return actions_; }

  void begin_step() override;
  Moments acquire(std::size_t unit, worker::Pass pass, const Moments& now) override;
  void release(std::size_t unit, worker::Pass pass) override;
  Moments open(std::size_t unit, const Moments& now) override;
  void ready(std::size_t unit, bool last_micro, const Moments& now) override;
  Moments finish(const Moments& now) override;

 private:
  void compute_until(double now);
  void await_first_push();

  const TimedJob job_;
  std::vector<std::size_t> order_[2];  ///< of the units in each pass
  std::vector<WorkerAction> actions_;
  double now_ = 0;                   ///< of the walk: all before is in the actions
  std::vector<bool> here_;           ///< by unit: fetched, and not dropped
  std::vector<bool> updated_;        ///< by unit: this worker has applied the update before the step
  std::vector<std::size_t> micros_;  ///< by unit: pushes in this step
  std::deque<std::size_t> window_;   ///< units whose gradients are in flight
};

}  // namespace psring::bench
