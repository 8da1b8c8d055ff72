#pragma once

#include <cstddef>
#include <optional>

#include <psring/common/base/mesh_part.h>
#include <psring/common/proc/job.h>

namespace psring {

/// The part of the model that a server owns; a follower has its server's.
inline MeshPart part_of_server(const JobOptions& job, std::size_t rank) {
  return part_of(job.mesh(), rank % job.servers);
}

/// The servers that own a part of the model. REQUIRES: every part has the same number of servers.
inline std::size_t servers_of_part(const JobOptions& job) { return job.servers / job.mesh().model_workers(); }

/// The server in a worker's process, by their numbers among the servers and the workers of one part.
inline std::optional<std::size_t> server_beside(const JobOptions& job, DataRank worker) {
  const std::size_t parts = job.mesh().model_workers();
  const std::optional<std::size_t> server = job.server_in(worker.value * parts);
  return server ? std::optional(*server / parts) : std::nullopt;
}

}  // namespace psring
