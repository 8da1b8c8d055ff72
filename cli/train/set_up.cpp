#include <vector>

#include <psring/cli/train/set_up.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/device.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {

worker::TrainSetup set_up(const JobOptions& job, const App& app) {
  check_servers_part(job, app);
  return {job, app.worker_registries(), app.optimizers()};
}

void check_servers_part(const JobOptions& job, const App& app) {
  const auto rule = app.aggregators().make(Spec::parse("--aggregate", job.aggregate));
  if (job.server_device == "cuda" && !rule->sum_times(job.data_workers()))
    fail(ErrorKind::usage, "--server-device cuda: --aggregate {} works only with servers on the host", job.aggregate);
  if (job.server_device == "cuda") require_cuda();
  // The rule checks the number of workers when it aggregates: one element of each worker's gradient is enough.
  const std::vector<float> gradient(1);
  const std::vector<const float*> inputs(job.data_workers(), gradient.data());
  std::vector<float> out(1);
  rule->aggregate(inputs, out);
}

void fill_in(JobOptions& job, const App& app, const worker::TrainSetup* setup) {
  optim::fill_in(job, *optim::make_optimizer(app.optimizers(), job));
  if (setup == nullptr) return;
  if (!setup->buffers().tensors.empty()) job.recovery = "checkpoint";
  job.steps = setup->steps();
  job.epochs = (setup->steps() + setup->steps_per_epoch() - 1) / setup->steps_per_epoch();
}

}  // namespace psring::cli
