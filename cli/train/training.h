#pragma once

#include <psring/cli/train/launch.h>
#include <psring/cli/train/tasks.h>
#include <psring/worker/training.h>

namespace psring::cli {

/// Implements train and resume: prints the model and the job, runs the job, and prints its summary. Returns the exit
/// status.
int run_training(const worker::TrainSetup& setup, const JobOptions& job, const LaunchOptions& options,
                 const Invocation& invocation, SignalWatch& signals);

/// Continues the run that an earlier start of this job of Slurm has left in `folder`, from its newest checkpoint, or
/// from its beginning if it has none. Returns the exit status, 0 if the run is complete. Throws usage if the run
/// belongs to another job.
int continue_requeued(const std::filesystem::path& folder, const std::string& listen, Tasks& tasks,
                      const Invocation& invocation, SignalWatch& signals);

}  // namespace psring::cli
