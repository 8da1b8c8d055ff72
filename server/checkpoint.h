#pragma once

#include <cstdint>

#include <psring/common/proc/job.h>
#include <psring/server/shard.h>

namespace psring::server {

/// Tells a shard where its job begins: with --resume as the checkpoint says. Throws data where that is none.
void begin_from_checkpoint(const JobOptions& job, ShardOptions& options);

/// Writes the part of a shard of a job's checkpoint of `step`. Throws data, naming the file.
void write_part(const JobOptions& job, std::uint32_t rank, Shard& shard, std::uint64_t step);

}  // namespace psring::server
