#pragma once

#include <string>

#include <psring/cli/plan/fitting.h>

namespace psring::cli {

/// Makes the job of a strategy from the options that were given: checks each value, adds the strategy's own defaults
/// (`single` is one process, and so on), applies the rule for options that mean nothing to the strategy (`left_out` as
/// in Fitting), and refuses options that contradict each other. Starts and writes nothing. `loopback` says whether the
/// job stays on this host. Throws usage, or data if a file is bad.
JobOptions resolve(const options::Given& given, const std::string& strategy, const worker::StrategyKind& kind,
                   LeftOut* left_out, bool loopback);

/// The model that was given, or the default.
inline std::string model_of(const options::Given& given) {
  const auto found = given.find("model");
  return found == given.end() ? JobOptions().model : found->second;
}

}  // namespace psring::cli
