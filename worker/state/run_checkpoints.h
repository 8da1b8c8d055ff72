#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/system/folder_lock.h>
#include <psring/common/proc/job.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/optimizer.h>

namespace psring::worker {

/// The job's rule with everything that a run which continues has to share: "sgd momentum=0.9 nesterov".
std::string describe_rule(const JobOptions& job, const optim::Optimizer& rule);

/// Throws data, naming --resume, if the checkpoint does not have one of the tensors with its shape.
void require_tensors(const optim::Checkpoint& saved, const std::vector<optim::SavedTensor>& tensors);

/// The checkpoints of a run, as its worker 0 completes them. No other run saves into their folder meanwhile, as far as
/// its file system knows.
class RunCheckpoints {
 public:
  /// `first_step`: the step of the checkpoint that the run begins with, or 0; `facts`: see optim::Manifest. Throws
  /// usage if another run saves into the job's folder, or has saved a later step there.
  RunCheckpoints(const JobOptions& job, std::uint64_t first_step, std::map<std::string, std::string> facts);

  /// Called when all parts of the step are written: makes a checkpoint of them, and removes the checkpoints that the
  /// job does not keep.
  void complete(std::uint64_t step, std::map<std::string, double> scalars, std::vector<optim::SavedTensor> tensors);

 private:
  const std::string run_;
  const std::size_t keep_;
  const std::string in_use_;  ///< a checkpoint that a process which is started again would read
  const std::map<std::string, std::string> facts_;
  const optim::CheckpointFolder folder_;
  std::optional<FolderLock> lock_;
};

}  // namespace psring::worker
