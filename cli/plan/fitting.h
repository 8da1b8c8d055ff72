#pragma once

#include <map>
#include <string>

#include <psring/common/proc/options/values.h>
#include <psring/worker/registries.h>

namespace psring::cli {

/// Options that a strategy leaves out, with the error line that would refuse each. The key is the flag.
using LeftOut = std::map<std::string, std::string>;

/// Returns whether a job of this strategy has the feature.
bool has_feature(const worker::StrategyKind& kind, const JobOptions& job, options::Feature feature);

/// The rule for options that mean nothing to a strategy: `train` refuses them; `compare`, which gives all strategies
/// the same options, leaves them out of the strategy's run.
class Fitting {
 public:
  /// `left_out`: null if such options are refused. All arguments must outlive the object.
  Fitting(const std::string& strategy, const worker::StrategyKind& kind, const options::Given& given, LeftOut* left_out)
      : strategy_(strategy), kind_(kind), given_(given), left_out_(left_out) {}

  /// Applies the rule to every option that needs a feature: gives the job the defaults of those that it lacks.
  void apply_to(JobOptions& job) const;

  /// Throws usage with the line, or leaves the option out.
  void refuse(const char* flag, const std::string& line) const;

  /// Returns whether options are left out instead of refused.
  bool leaves_out() const { return left_out_ != nullptr; }

 private:
  const std::string& strategy_;
  const worker::StrategyKind& kind_;
  const options::Given& given_;
  LeftOut* const left_out_;
};

}  // namespace psring::cli
