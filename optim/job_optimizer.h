#pragma once

#include <memory>

#include <psring/common/proc/job.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizers.h>

namespace psring::optim {

/// Makes the optimizer of the job's options. Throws usage.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerRegistry& registry, const JobOptions& job);

/// Makes the loss scaler of --loss-scale and --precision. Throws usage.
LossScaler loss_scaler(const JobOptions& job);

/// Sets the job's unset options to the values that the optimizer uses.
void fill_in(JobOptions& job, const Optimizer& optimizer);

}  // namespace psring::optim
