#pragma once

#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>

namespace psring {

/// Starts `argv`, with `--endpoint-fd N` appended, as the process `name` of `cluster` (with the descriptors
/// `inherited` open), and returns the line that it publishes there: where it listens. Throws, with the process's
/// own last line, where it ends first; timeout where it says nothing until the deadline.
std::string start_listening(LocalCluster& cluster, const std::string& name, std::vector<std::string> argv,
                            Moment deadline, const Clock& clock, std::span<const int> inherited = {});

/// That, for a job's coordinator: the HOST:PORT that it is reached at.
std::string start_coordinator(LocalCluster& cluster, std::vector<std::string> argv, Moment deadline, const Clock& clock,
                              std::span<const int> inherited = {});

/// The other side: writes the endpoint to `--endpoint-fd` and closes it. Throws usage where that is no pipe.
void publish_endpoint(int fd, const std::string& endpoint);

}  // namespace psring
