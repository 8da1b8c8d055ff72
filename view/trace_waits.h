#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <psring/common/base/text/json.h>
#include <psring/view/intervals.h>
#include <psring/view/trace_events.h>

namespace psring::view {

/// Collects who waits for whom from the slices of a trace. A worker waits where a slice says so. A server waits for the
/// worker whose gradient of a unit comes last, from the end of the first worker's push of the unit, except while the
/// server works: this holds where the server needs all gradients of a step (bsp). Steps of which only the span was
/// recorded do not count.
class WaitTimes {
 public:
  void take(const TraceEvent& event);

  /// Returns [[process, peer, seconds]]: means over the steps of the process, without evaluations. `peer` is "" for the
  /// waits whose slices name no process.
  /// `detailed`: the steps whose details were recorded.
  Json json(const std::set<std::uint64_t>& detailed) const;

 private:
  struct WorkerStep {
    std::optional<Interval> step;
    std::map<std::string, std::vector<Interval>> waits;  ///< by peer
    std::vector<Interval> evaluations;
  };
  struct Push {
    Interval span;
    std::string worker;
  };
  struct ServerStep {
    std::map<std::string, std::vector<Push>> pushes;  ///< by unit
  };
  using Waits = std::map<std::string, double>;  ///< seconds, by peer

  static Waits waits_of(const WorkerStep& step);
  static Waits waits_of(const ServerStep& step);

  std::map<std::string, std::map<std::uint64_t, WorkerStep>> workers_;
  std::map<std::string, std::map<std::uint64_t, ServerStep>> servers_;
};

}  // namespace psring::view
