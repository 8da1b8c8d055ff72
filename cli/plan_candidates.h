#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/bench/cost/fit.h>
#include <psring/bench/cost/mesh.h>
#include <psring/bench/cost/step_model.h>
#include <psring/cli/app.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

/// The machine and the job to plan for.
struct PlanInput {
  options::Given job;  ///< the options that were given
  std::vector<std::string> strategies;
  bench::Mesh mesh;
  std::optional<bench::Fit> fit = std::nullopt;  ///< none: messages and updates take no time
  bool device = false;                           ///< layers are computed by a device, not by a host's processors
  bench::PassTime pass_time;
  std::optional<double> memory_bytes = std::nullopt;  ///< of a process; rows that need more come last
};

/// A way to train, with its predicted step.
struct PlanRow {
  std::string label;  ///< "ps s=4", "zero3 shard-group=8"
  JobOptions job;
  std::shared_ptr<const worker::StrategyKind> kind;  ///< shared by all rows of a strategy
  std::map<std::string, std::string> choice = {};    ///< options that the plan chose, on top of those that were given
  bool tokens = false;                               ///< samples are tokens
  std::size_t hosts = 0;                             ///< workers' hosts, and those of standalone servers
  bench::StepEstimate step;
  double samples_per_s = 0;  ///< tokens for models that read text
  double sent_bytes = 0;     ///< by the busiest card of a host in a step, one direction
  double process_bytes = 0;  ///< booked by the fullest process
  bool fits = true;          ///< into PlanInput::memory_bytes
};

/// Evaluates all strategies with the options that matter to each, and returns the rows, best first. Strategies that the
/// mesh or the given options exclude are left out. Throws usage if none is left.
std::vector<PlanRow> plan_rows(const PlanInput& input, const App& app);

}  // namespace psring::cli
