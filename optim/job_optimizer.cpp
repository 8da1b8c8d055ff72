#include <psring/optim/job_optimizer.h>

namespace psring::optim {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerRegistry& registry, const JobOptions& job) {
  return registry.make(Spec::parse("--optimizer", job.optimizer), {.momentum = job.momentum,
                                                                   .nesterov = job.nesterov,
                                                                   .weight_decay = job.weight_decay,
                                                                   .beta1 = job.beta1,
                                                                   .beta2 = job.beta2,
                                                                   .eps = job.eps,
                                                                   .alpha = job.alpha});
}

}  // namespace psring::optim
