#pragma once

#include <psring/common/base/text/registry.h>
#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/server/aggregator.h>

namespace psring::server {

/// Runs a server: joins the job, holds the server's ranges, serves until the workers are done, prints a summary.
/// Returns how the job ended if a signal ended it.
net::control::Interruption run_server(const RoleOptions& options, const Registry<Aggregator>& aggregators,
                                      const optim::OptimizerRegistry& optimizers);
/// Runs a server that has joined already: it lives in a worker's process.
void run_server(Membership& member, const Registry<Aggregator>& aggregators,
                const optim::OptimizerRegistry& optimizers);

}  // namespace psring::server
