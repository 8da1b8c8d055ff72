#pragma once

#include <psring/common/base/registry.h>
#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/server/aggregator.h>

namespace psring::server {

/// A server's life: joins the job, holds its ranges, serves until the workers are done. Prints its balance. How the
/// job ended, where a signal did it.
net::control::Interruption run_server(const RoleOptions& options, const Registry<Aggregator>& aggregators,
                                      const optim::OptimizerRegistry& optimizers);
/// The same of one that has joined: it lives in a worker's process.
void run_server(Membership& member, const Registry<Aggregator>& aggregators,
                const optim::OptimizerRegistry& optimizers);

}  // namespace psring::server
