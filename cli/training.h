#pragma once

#include <psring/cli/launch.h>
#include <psring/worker/training.h>

namespace psring::cli {

/// Implements train and resume: prints the model and the job, runs the job, and prints its summary. Returns the exit
/// status.
int run_training(const worker::TrainSetup& setup, const JobOptions& job, const LaunchOptions& options,
                 const Invocation& invocation, SignalWatch& signals);

}  // namespace psring::cli
