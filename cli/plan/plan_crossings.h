#pragma once

#include <string>
#include <vector>

#include <psring/cli/plan/plan_sweep.h>

namespace psring::cli {

/// Two curves of a sweep change places between two neighbouring points.
struct PlanCrossing {
  enum class Of { step_s, per_host };  ///< the step's time, or samples per second and host
  Of of = Of::step_s;
  std::string before;     ///< the curve that is better before
  std::string after;      ///< the curve that is better afterwards
  std::size_t point = 0;  ///< the crossing lies between this point and the next
  double x = 0;           ///< where the logarithms cross if both are straight lines between the points
  double y = 0;           ///< seconds, or samples per second and host
};

/// Finds the crossings of all curves: of every two series that have rows at two neighbouring points.
std::vector<PlanCrossing> find_crossings(const std::vector<PlanPoint>& points);

}  // namespace psring::cli
