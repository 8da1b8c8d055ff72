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

/// The options of a job's shard and the objects that they point to, as server/role.cpp makes them. REQUIRES: the setup
/// outlives it.
struct JobShard {
  /// `pushers`: the number of workers that push, if not all do (--local-reduce); 0: all.
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
