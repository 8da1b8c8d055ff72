#pragma once

#include <string>

#include <psring/bench/cost/fit.h>
#include <psring/bench/cost/step_model.h>
#include <psring/common/proc/job.h>

namespace psring::bench {

/// The name of the line of a job's update rule: "update.adam".
std::string update_line(const JobOptions& job);

/// The costs of a job's processes, from the lines for the transport and the optimizer that the job uses. A line that
/// the fit does not have costs nothing. `several_hosts`: workers and servers are on different hosts.
HostCosts fitted_costs(const Fit& fit, const JobOptions& job, bool several_hosts);

}  // namespace psring::bench
