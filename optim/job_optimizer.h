#pragma once

#include <memory>

#include <psring/common/proc/job.h>
#include <psring/optim/optimizers.h>

namespace psring::optim {

/// The optimizer that the job's flags describe. Throws usage.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerRegistry& registry, const JobOptions& job);

}  // namespace psring::optim
