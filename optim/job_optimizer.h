#pragma once

#include <memory>

#include <psring/common/proc/job.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizers.h>

namespace psring::optim {

/// The optimizer that the job's flags describe. Throws usage.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerRegistry& registry, const JobOptions& job);

/// As --loss-scale and --precision say. Throws usage.
LossScaler loss_scaler(const JobOptions& job);

/// Writes into the job what the optimizer uses where the job says nothing.
void fill_in(JobOptions& job, const Optimizer& optimizer);

}  // namespace psring::optim
