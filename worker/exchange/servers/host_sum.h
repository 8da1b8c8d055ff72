#pragma once

#include <deque>
#include <functional>

#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// --local-reduce: the workers of a host add up a unit's gradient in shared memory, in rank order, into the buffer of
/// the host's first worker, rounded to the gradients' type. That worker pushes the sum for all of them. Without the
/// option, every worker pushes its own gradient.
class HostSum {
 public:
  /// REQUIRES: plan and world outlive it.
  HostSum(const Plan& plan, const World& world) : plan_(plan), world_(world) {}

  bool this_worker_pushes() const { return world_.host == nullptr || world_.host->rank() == 0; }
  /// Starts to add up the unit's gradient, and calls `then` when the sum is in the pushing worker's buffer and the
  /// other workers' buffers are free. At once if there is nothing to add; else in a later call of this object, in the
  /// order of units. Never waits. All workers of the host call it for the same units in the same order.
  void add(UnitId unit, Elements gradient, std::function<void()> then);
  /// On return `then` was called for the unit, and for all units before it.
  void wait(UnitId unit);
  void wait_all();
  /// Waits for all workers of the host, so that the bytes that they read from this worker are counted.
  void quiesce() const;
  Nanoseconds waited() const { return waited_; }

  /// Adds the bytes that a step moves within the host at this worker, and whether sums are in rank order.
  void predict(Prediction& sum) const;

 private:
  struct Flight {
    UnitId unit;
    ring::Work work;
    std::function<void()> then;
  };
  ring::Parts all_to_first(std::size_t elements) const;
  void land_first();

  const Plan& plan_;
  const World& world_;
  std::deque<Flight> flights_;
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
