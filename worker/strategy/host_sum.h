#pragma once

#include <deque>
#include <functional>
#include <span>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// --local-reduce: the workers of a host add a unit's gradient up in shared memory, in rank order, into the first
/// one's buffer, rounded to the gradients' type, and that one pushes it for all. Without, every worker pushes its own.
class HostSum {
 public:
  explicit HostSum(const Context& context) : context_(context) {}

  bool this_one_pushes() const { return context_.host == nullptr || context_.host->rank() == 0; }
  /// Adds up the unit's gradient, and calls `then` when that is done: the sum is in place where it is pushed from, and
  /// the others' buffers are free. At once where there is nothing to add; else in a later call here, in the order of
  /// units. Never waits. All workers of the host call it for the same units in the same order.
  void add(UnitId unit, Elements gradient, std::function<void()> then);
  /// On return `then` was called of the unit, and of all before it.
  void wait(UnitId unit);
  void wait_all();
  /// After a barrier of the host: what the others read of this worker is counted.
  void quiesce() const;
  Nanoseconds waited() const { return waited_; }

  /// Adds what a step moves within the host at this worker, and says whether sums are in rank order.
  void predict(Prediction& sum) const;

 private:
  struct Flight {
    UnitId unit;
    ring::Work work;
    std::function<void()> then;
  };
  ring::Parts all_to_first(std::size_t elements) const;
  void land_first();

  const Context& context_;
  std::deque<Flight> flights_;
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
