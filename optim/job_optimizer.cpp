#include <map>
#include <optional>
#include <string>
#include <utility>

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

LossScaler loss_scaler(const JobOptions& job) {
  return LossScaler::parse(job.loss_scale, job.precision == "f16" || job.comm_dtype == "f16");
}

void fill_in(JobOptions& job, const Optimizer& optimizer) {
  const std::map<std::string, double> used = optimizer.hyperparameters();
  const std::pair<const char*, std::optional<double>&> options[] = {
      {"momentum", job.momentum}, {"weight_decay", job.weight_decay},
      {"beta1", job.beta1},       {"beta2", job.beta2},
      {"eps", job.eps},           {"alpha", job.alpha}};
  for (const auto& [name, value] : options)
    if (const auto found = used.find(name); found != used.end()) value = found->second;
  job.lr = job.lr.value_or(optimizer.default_lr());
}

}  // namespace psring::optim
