#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/base/registry.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/schedule.h>
#include <psring/server/aggregator.h>
#include <psring/server/shard.h>
#include <psring/worker/training.h>

namespace psring::test {

/// What a server of a job makes its shard from, as server/role.cpp does. The setup outlives it.
struct JobShard {
  /// `pushers`: how many workers push, where not all do (--local-reduce); 0: all.
  JobShard(const worker::TrainSetup& setup, const Registry<server::Aggregator>& aggregators, std::uint32_t rank,
           std::size_t pushers = 0);
  JobShard(const JobShard&) = delete;
  JobShard& operator=(const JobShard&) = delete;

  const std::unique_ptr<server::Aggregator> aggregator;
  const std::unique_ptr<optim::Schedule> schedule;
  const std::unique_ptr<optim::Codec> codec;
  server::ShardOptions options;
};

}  // namespace psring::test
