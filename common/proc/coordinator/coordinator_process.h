#pragma once

#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>

namespace psring {

/// Starts `argv`, with `--endpoint-fd N` appended, as the process `name` of `cluster` (with the descriptors `inherited`
/// open), and returns the endpoint that the process publishes on that descriptor. If the process ends first, throws
/// with its own last line; throws timeout if it publishes no endpoint until the deadline.
std::string start_listening(LocalCluster& cluster, const std::string& name, std::vector<std::string> argv,
                            Moment deadline, const Clock& clock, std::span<const int> inherited = {});

/// The same for a job's coordinator; returns its HOST:PORT.
std::string start_coordinator(LocalCluster& cluster, std::vector<std::string> argv, Moment deadline, const Clock& clock,
                              std::span<const int> inherited = {});

/// The started process's side: writes the endpoint to `--endpoint-fd`, and closes it. Throws usage if it cannot be
/// written.
void publish_endpoint(int fd, const std::string& endpoint);

}  // namespace psring
