#pragma once

#include <cstddef>
#include <string>

#include <psring/common/proc/job.h>
#include <psring/worker/train_setup.h>

namespace psring::cli {

/// Throws data, with the cure, if the job's processes on this host could not run. Runs those of doctor's checks that
/// take next to no time. `agents`: all agents of the job; `here`: those on this host. `listen`: ADDR:PORT of the
/// coordinator.
void check_host(const JobOptions& job, std::size_t agents, std::size_t here, const std::string& listen);

/// Throws data if the job's processes on this host would book more memory than the host has. Does nothing if that is
/// known only once the processes have their hosts. `agents`, `here`: as
/// above.
void check_memory(worker::TrainSetup& setup, std::size_t agents, std::size_t here);

}  // namespace psring::cli
