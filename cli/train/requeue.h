#pragma once

#include <filesystem>

#include <psring/common/proc/launched_task.h>

namespace psring::cli {

/// Asks Slurm to start this process's job once more, later, which ends the job now. Throws data if scontrol fails.
void requeue(const SlurmJob& job, const std::filesystem::path& run_folder);

}  // namespace psring::cli
