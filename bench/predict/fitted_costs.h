#pragma once

#include <string>

#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/step_model.h>
#include <psring/common/proc/job.h>
#include <psring/optim/optimizer.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::bench {

/// The name of the line of an update rule: "update.adam". `name`: of the registry, without arguments.
std::string update_line(const std::string& name, const optim::Optimizer& rule);

/// Returns what messages, sums and a host's processors cost a job on a mesh. A figure that does not matter to the job
/// stays 0. Throws usage if the fit lacks a figure, naming it.
HostCosts message_costs(const Fit& fit, const JobOptions& job, const worker::StrategyKind& kind, const Mesh& mesh);
/// Adds the cost of an update by the job's rule. Throws usage, as message_costs does.
void add_update(const Fit& fit, const JobOptions& job, const optim::Optimizer& rule, HostCosts& costs);
/// Returns all costs that a job's prediction needs. Throws usage, as message_costs does.
HostCosts fitted_costs(const Fit& fit, const JobOptions& job, const worker::StrategyKind& kind,
                       const optim::Optimizer& rule, const Mesh& mesh);

}  // namespace psring::bench
