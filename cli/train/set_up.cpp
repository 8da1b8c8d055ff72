#include <vector>

#include <psring/cli/train/set_up.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/device.h>
#include <psring/common/proc/fault.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {
namespace {

bool each_push_updates(const std::string& consistency) { return parse_consistency(consistency).each_push_updates; }

/// A kill or stop at a step that the run does not make would never come.
void check_steps_of_faults(const JobOptions& job, std::uint64_t steps) {
  const std::uint64_t first = job.resume.empty() ? 0 : optim::Checkpoint(job.resume).step();
  const bool each_push = each_push_updates(job.consistency) || each_push_updates(job.row_consistency());
  for (const Fault& fault : parse_faults(job.fault)) {
    if (!fault.step) continue;
    // A worker is hit as it begins the step, a server once it has made that many updates.
    const bool server = fault.role == net::Role::server;
    const std::uint64_t last = server ? steps * (each_push ? job.workers : 1) : steps - 1;
    if (*fault.step >= first && *fault.step <= last) continue;
    fail(ErrorKind::usage, "--fault {}: the job has no step {} here; a {} can be hit at step {} to {}", job.fault,
         *fault.step, to_string(fault.role), first, last);
  }
}

}  // namespace

worker::TrainSetup set_up(const JobOptions& job, const App& app) {
  check_servers_part(job, app);
  worker::TrainSetup setup(job, app.worker_registries(), app.optimizers());
  check_steps_of_faults(job, setup.steps());
  return setup;
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
  if (setup == nullptr) return check_steps_of_faults(job, *job.steps);
  if (!setup->buffers().tensors.empty()) job.recovery = "checkpoint";
  job.steps = setup->steps();
  job.epochs = (setup->steps() + setup->steps_per_epoch() - 1) / setup->steps_per_epoch();
}

}  // namespace psring::cli
