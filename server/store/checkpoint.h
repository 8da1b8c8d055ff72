#pragma once

#include <cstdint>

#include <psring/common/proc/job.h>
#include <psring/server/shard.h>

namespace psring::server {

/// With --resume, sets the options so that the shard begins with the checkpoint's values and version. Throws data if
/// the folder has no valid checkpoint.
void begin_from_checkpoint(const JobOptions& job, ShardOptions& options);

/// Writes the shard's part of the job's checkpoint of `step`. Throws data, naming the file.
void write_part(const JobOptions& job, std::uint32_t rank, Shard& shard, std::uint64_t step);

}  // namespace psring::server
