#pragma once

#include <cstddef>
#include <memory>

#include <psring/common/base/text/registry.h>
#include <psring/common/proc/job.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/optimizers.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/optim/schedule.h>
#include <psring/server/aggregator.h>
#include <psring/server/shard.h>

namespace psring::server {

/// The rules of a job's shards: the optimizer, its schedule, the aggregator and the codec, made from the job's options.
class JobShard {
 public:
  /// `steps`: the length of the run, for the schedule. Throws usage. REQUIRES: the job outlives it.
  JobShard(const JobOptions& job, std::uint64_t steps, const Registry<Aggregator>& aggregators,
           const optim::OptimizerRegistry& optimizers);
  JobShard(const JobShard&) = delete;
  JobShard& operator=(const JobShard&) = delete;

  /// Returns the options of a shard, which point to the rules. A follower has the options of its server. `pushers`:
  /// number of workers that push, fewer than all with --local-reduce.
  ShardOptions options(std::size_t rank, std::size_t pushers) const;
  const optim::Codec* codec() const { return codec_.get(); }

 private:
  const JobOptions& job_;
  const std::unique_ptr<Aggregator> aggregator_;
  const std::unique_ptr<optim::Codec> codec_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::unique_ptr<optim::Schedule> schedule_;
  const optim::TableRules row_rules_;
};

}  // namespace psring::server
