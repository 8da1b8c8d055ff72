#pragma once

#include <psring/cli/launch.h>
#include <psring/worker/training.h>

namespace psring::cli {

/// Serves train and resume: says what is to be trained, runs the job, and sums it up. Returns the exit
/// status.
int run_training(const worker::TrainSetup& setup, const JobOptions& job, const LaunchOptions& options,
                 const Invocation& invocation, SignalWatch& signals);

}  // namespace psring::cli
