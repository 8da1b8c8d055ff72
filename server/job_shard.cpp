#include <psring/common/base/consistency.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/server/job_shard.h>
#include <psring/server/store/checkpoint.h>

namespace psring::server {

JobShard::JobShard(const JobOptions& job, std::uint64_t steps, const Registry<Aggregator>& aggregators,
                   const optim::OptimizerRegistry& optimizers)
    : job_(job),
      aggregator_(job.local_reduce && job.aggregate == "mean"
                      ? make_mean_of(job.workers)
                      : aggregators.make(Spec::parse("--aggregate", job.aggregate))),
      codec_(optim::make_codec(job.compress, job.error_feedback)),
      optimizer_(optim::make_optimizer(optimizers, job)),
      schedule_(optim::make_schedule(Spec::parse("--schedule", job.schedule), steps)),
      row_rules_(job, optimizers) {}

ShardOptions JobShard::options(std::size_t rank, std::size_t pushers) const {
  const bool applies = job_.optimizer_on == "server";
  const MeshPart part = part_of_server(job_, rank);
  ShardOptions options{.rank = static_cast<std::uint32_t>(part.within(rank % job_.servers)),
                       .servers = static_cast<std::uint32_t>(servers_of_part(job_)),
                       .workers = static_cast<std::uint32_t>(job_.data_workers()),
                       .part = part,
                       .pushers = static_cast<std::uint32_t>(pushers),
                       .lr = job_.lr.value_or(optimizer_->default_lr()),
                       .clip_norm = applies ? job_.clip_norm : 0,
                       .loss_scaler = applies ? optim::loss_scaler(job_) : optim::LossScaler(),
                       .master_copy = job_.master_copy,
                       .optimizer = applies ? optimizer_.get() : nullptr,
                       .schedule = applies ? schedule_.get() : nullptr,
                       .aggregator = aggregator_.get(),
                       .row_rules = &row_rules_,
                       .codec = codec_.get(),
                       .seed = job_.seed,
                       .consistency = parse_consistency(job_.consistency, job_.backup_workers),
                       .row_consistency = parse_consistency(job_.row_consistency()),
                       .remedy = parse_remedy(job_.remedy),
                       .keeps_old_rows = optim::keeps_old_rows(job_),
                       .save_every = job_.checkpoint_every};
  begin_from_checkpoint(job_, options);
  return options;
}

}  // namespace psring::server
