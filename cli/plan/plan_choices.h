#pragma once

#include <set>
#include <string>
#include <vector>

#include <psring/bench/predict/step_model.h>
#include <psring/cli/options/mesh_word.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/options/values.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::cli {

/// The options that the plan chooses for a row, on top of those that were given.
struct PlanChoice {
  options::Given options = {};
  /// How the number of servers follows from the mesh: "1", "hosts/2", "hosts". Empty if it was given.
  std::vector<std::string> server_rules = {};
};

/// The options that --choose may name: the plan sets them only if it is asked to.
inline constexpr const char* kChoosable[] = {"compress", "precision", "accumulate", "activation-checkpointing"};

/// The choices for one strategy in a mesh, which they name, too. Options that were given are kept.
std::vector<PlanChoice> plan_choices(const options::Given& given, const std::set<std::string>& choose,
                                     const bench::Mesh& mesh, const worker::StrategyKind& kind, const MeshWord& word);
/// The same choice in ways that need less memory: a list without and one with activation checkpointing, each with more
/// and more micro-batches.
std::vector<std::vector<PlanChoice>> smaller_choices(const PlanChoice& choice, const options::Given& given);

/// Does the plan change the numbers that training computes, beyond rounding in another order?
bool changes_numerics(const PlanChoice& choice);

/// Returns the value of --servers: a number, or mixed:K.
std::string servers_text(const JobOptions& job);

/// "ps s=4 local-reduce bucket=5M", "tp:2+ddp"
std::string label_of(const JobOptions& job, const worker::StrategyKind& kind, const PlanChoice& choice);
/// The curves of a sweep that the row is a point of: "ps s=1", and "ps s=hosts" if there is one host. Options that
/// only tune (bucket, prefetch, micro-batches) are not part of a name.
std::vector<std::string> series_of(const JobOptions& job, const PlanChoice& choice);

}  // namespace psring::cli
