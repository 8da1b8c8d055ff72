#pragma once

#include <psring/cli/app.h>
#include <psring/common/proc/job.h>
#include <psring/worker/training.h>

namespace psring::cli {

/// Makes the workers' part of a job, and checks the servers' part: everything that can be checked before a process
/// starts. Throws usage or data, naming the flag or the file.
worker::TrainSetup set_up(const JobOptions& job, const App& app);

/// Checks that servers can do the job. Throws usage.
void check_servers_part(const JobOptions& job, const App& app);

/// Writes into the job the values that it will use for unset options: the optimizer's defaults and, if `setup` is not
/// null, the steps and the number of epochs that they begin.
void fill_in(JobOptions& job, const App& app, const worker::TrainSetup* setup);

}  // namespace psring::cli
