#pragma once

#include <psring/common/proc/role.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/registries.h>

namespace psring::worker {

/// A worker's life: joins the job, trains, reports; worker 0 saves the model. Its metrics and trace go to
/// the run folder through the coordinator.
void run_worker(const RoleOptions& options, const Registries& registries, const optim::OptimizerRegistry& optimizers);

}  // namespace psring::worker
