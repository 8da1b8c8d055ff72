#pragma once

#include <functional>

#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/registries.h>

namespace psring::worker {

/// A worker's life: joins the job, trains, reports; worker 0 saves the model. Its metrics and trace go to
/// the run folder through the coordinator. Where the job wants a server in this process, `run_server` is that one's
/// life, once it has joined: in a thread of its own. How the job ended, where a signal did it.
net::control::Interruption run_worker(const RoleOptions& options, const Registries& registries,
                                      const optim::OptimizerRegistry& optimizers,
                                      const std::function<void(Membership&)>& run_server);

}  // namespace psring::worker
