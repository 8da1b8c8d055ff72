#pragma once

#include <string>
#include <vector>

#include <psring/cli/plan/plan_candidates.h>

namespace psring::cli {

/// An option of the plan or of the job, and the values that a sweep gives it.
struct PlanSweep {
  std::string name;  ///< without dashes
  std::vector<std::string> values;

  /// The values' places on an axis: numbers with their units (bytes, bits per second), or 0, 1, 2 ... if a value has no
  /// number.
  std::vector<double> positions() const;
};

/// Parses --sweep: "hosts=1..512" doubles, also with a unit ("bucket=1M..64M"); "servers=1,4" is a list; if values have
/// commas, semicolons separate them: "link-between=1gbit,1ms;10gbit,20us". Throws usage.
PlanSweep parse_plan_sweep(const std::string& text);

/// The plan at one value of a sweep.
struct PlanPoint {
  std::string value;
  double x = 0;
  bench::Mesh mesh;
  PlanRows plan;
};

}  // namespace psring::cli
