#pragma once

#include <cstddef>
#include <string>

#include <psring/common/proc/job.h>
#include <psring/worker/train_setup.h>

namespace psring::cli {

/// Throws data, with the cure, if the job's processes on this host could not run. Runs those of doctor's checks that
/// take next to no time. `listen`: ADDR:PORT of the coordinator.
void check_host(const JobOptions& job, std::size_t nodes, const std::string& listen);

/// Throws data if the job's processes on this host, one of `nodes`, would book more memory than the host has.
void check_memory(worker::TrainSetup& setup, std::size_t nodes);

}  // namespace psring::cli
