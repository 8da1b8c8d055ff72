#include <psring/common/base/consistency.h>
#include <psring/server/checkpoint.h>
#include <psring/tests/support/job_shard.h>

namespace psring::test {

JobShard::JobShard(const worker::TrainSetup& setup, const Registry<server::Aggregator>& aggregators, std::uint32_t rank,
                   std::size_t pushers)
    : aggregator(setup.job().local_reduce ? server::make_mean_of(setup.job().workers)
                                          : aggregators.make(Spec::parse("--aggregate", setup.job().aggregate))),
      schedule(optim::make_schedule(Spec::parse("--schedule", setup.job().schedule), setup.steps())),
      codec(optim::make_codec(setup.job().compress, setup.job().error_feedback)) {
  const JobOptions& job = setup.job();
  const bool applies = job.optimizer_on == "server";
  options = {.rank = rank % static_cast<std::uint32_t>(job.servers),  // a follower has its server's rank
             .servers = static_cast<std::uint32_t>(job.servers),
             .workers = static_cast<std::uint32_t>(job.workers),
             .pushers = static_cast<std::uint32_t>(pushers),
             .lr = setup.optimizer().lr,
             .clip_norm = applies ? job.clip_norm : 0,
             .loss_scaler = applies ? setup.optimizer().loss_scaler : optim::LossScaler(),
             .master_copy = job.master_copy,
             .optimizer = applies ? setup.optimizer().rule : nullptr,
             .schedule = applies ? schedule.get() : nullptr,
             .aggregator = aggregator.get(),
             .codec = codec.get(),
             .seed = job.seed,
             .consistency = parse_consistency(job.consistency, job.backup_workers),
             .remedy = parse_remedy(job.remedy),
             .save_every = job.checkpoint_every};
  server::begin_from_checkpoint(job, options);
}

}  // namespace psring::test
