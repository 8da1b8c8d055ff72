#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/state/run_checkpoints.h>

namespace psring::worker {

std::string describe_rule(const JobOptions& job, const optim::Optimizer& rule) {
  std::string text = job.optimizer;
  for (const auto& [name, value] : rule.hyperparameters()) text += fmt::format(" {}={}", name, value);
  return job.nesterov ? text + " nesterov" : text;
}

void require_tensors(const optim::Checkpoint& saved, const std::vector<optim::SavedTensor>& tensors) {
  for (const optim::SavedTensor& tensor : tensors)
    if (tensor.width > 0 && !saved.has(tensor))
      fail(ErrorKind::data, "--resume {}: has no table '{}' with rows of {} elements and the arrays {}",
           saved.folder().string(), tensor.name, tensor.width, fmt::join(tensor.arrays, ", "));
    else if (!saved.has(tensor.name, tensor.shape))
      fail(ErrorKind::data, "--resume {}: has no tensor '{}' of shape [{}]", saved.folder().string(), tensor.name,
           fmt::join(tensor.shape, ", "));
}

RunCheckpoints::RunCheckpoints(const JobOptions& job, std::uint64_t first_step,
                               std::map<std::string, std::string> facts)
    : run_(job.run_id),
      keep_(job.checkpoint_keep),
      in_use_(job.goes_on() ? job.resume : ""),
      facts_(std::move(facts)),
      folder_(job.checkpoint_folder(), job.run_id) {
  folder_.create();
  // A launcher holds the lock for the moment of a look; a worker 0 that was lost, until its process has ended.
  const Nanoseconds patience = job.goes_on() ? from_seconds(job.heartbeat_timeout) : std::chrono::seconds(1);
  lock_.emplace(job.checkpoint_folder(), Deadline(SystemClock().now() + patience));
  if (lock_->outcome() == FolderLock::Outcome::in_use)
    fail(ErrorKind::usage, "--checkpoint-dir {}: another run saves there; choose another folder",
         job.checkpoint_folder());
  // The other run may have saved a step since the launcher looked.
  if (const auto newer = folder_.newer_of_another_run(first_step))
    fail(ErrorKind::usage, "--checkpoint-dir {}: another run saved a checkpoint of step {}; choose another folder",
         job.checkpoint_folder(), newer->step);
  using Leftovers = optim::CheckpointFolder::Leftovers;
  folder_.clear(lock_->outcome() == FolderLock::Outcome::taken ? Leftovers::all : Leftovers::own);
}

void RunCheckpoints::complete(std::uint64_t step, std::map<std::string, double> scalars,
                              std::vector<optim::SavedTensor> tensors) {
  optim::write_manifest(
      folder_.aside(step),
      {.run = run_, .step = step, .facts = facts_, .scalars = std::move(scalars), .tensors = std::move(tensors)});
  folder_.commit(step);
  if (keep_ > 0) folder_.keep(keep_, in_use_);
}

}  // namespace psring::worker
