#pragma once

#include <functional>

#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/registries.h>

namespace psring::worker {

/// Runs a worker: joins the job, trains, reports; worker 0 saves the model. Metrics and trace go to the run folder
/// through the coordinator. If the job wants a server in this process, `run_server` runs the server, once it has
/// joined, in a thread of its own. Returns how the job ended if a signal ended it.
net::control::Interruption run_worker(const RoleOptions& options, const Registries& registries,
                                      const optim::OptimizerRegistry& optimizers,
                                      const std::function<void(Membership&)>& run_server);

}  // namespace psring::worker
