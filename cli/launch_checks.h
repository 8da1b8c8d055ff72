#pragma once

#include <cstddef>
#include <string>

#include <psring/common/proc/job.h>

namespace psring::cli {

/// Throws data, with the cure, if the job's processes on this host could not run. Runs those of doctor's checks that
/// take next to no time. `listen`: ADDR:PORT of the coordinator.
void check_host(const JobOptions& job, std::size_t nodes, const std::string& listen);

}  // namespace psring::cli
