#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// The order in which each pass acquires units, and the rule by which fetched units come and go. Pure: both the
/// exchange and its prediction follow it.
class FetchSchedule {
 public:
  /// REQUIRES: the plan outlives it.
  explicit FetchSchedule(const Plan& plan);

  /// The unit, and the units to prefetch after it (--prefetch).
  std::span<const UnitId> wanted(UnitId unit, Pass pass) const;
  /// The unit is dropped when this pass releases it.
  bool drops(UnitId unit, Pass released) const;
  /// The units that a step fetches, each as often as it does.
  std::vector<UnitId> fetches_of_step() const;
  /// The bytes of the units that are here. REQUIRES: the schedule outlives it.
  std::unique_ptr<Holding> holding() const;

 private:
  const Plan& plan_;
  std::array<std::vector<UnitId>, 2> order_;  ///< forward, backward
};

}  // namespace psring::worker
