#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <psring/bench/peers/rank_link.h>

namespace psring::bench {

/// Ranks that make timed calls together, seen from the benchmark.
class TimedTeam {
 public:
  struct Round {
    double call_s = 0;  ///< median over the iterations of the slowest rank's time
    double loop_s = 0;
    std::size_t wrong = 0;  ///< wrong elements, summed over all ranks
    std::string detail;
  };

  virtual ~TimedTeam() = default;
  virtual std::string name() const = 0;
  /// Returns the ways in which the ranks can make this call.
  virtual std::vector<std::string> ways(const CollectiveCall& call) = 0;
  /// Runs one task on all ranks; sets `task.call.rank`.
  virtual Round measure(Task task) = 0;
  /// Does the work at each process that runs the benchmark, one after the other.
  virtual void in_turn(const std::function<void()>& work) { work(); }
};

}  // namespace psring::bench
