#include <psring/cli/option_checks.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/error.h>
#include <psring/common/proc/data_links.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {
namespace {

/// What GPUs exchange goes through NCCL, and is not psring's to shape, to encrypt or to damage.
void check_nccl(const JobOptions& job) {
  const JobOptions defaults;
  const auto refuse = [&job](bool wrong, const std::string& flag) {
    if (wrong) fail(ErrorKind::usage, "{}: --strategy {} --device cuda goes through NCCL", flag, job.strategy);
  };
  refuse(!job.link.empty(), "--link " + job.link);
  refuse(job.transport != defaults.transport, "--transport " + job.transport);
  refuse(job.algorithm != defaults.algorithm, "--algorithm " + job.algorithm);
  refuse(!job.tuning.empty(), "--tuning");
  refuse(job.streams != defaults.streams, fmt::format("--streams {}", job.streams));
  refuse(job.share_host_parameters, "--share-host-parameters");
  refuse(frame_faults(job.fault, 0, {}).has_value(), "--fault " + job.fault);
  if (job.encrypt)
    fail(ErrorKind::usage,
         "--strategy {} --device cuda: NCCL encrypts nothing; --encrypt off, where the network can be trusted",
         job.strategy);
}

/// Returns the flag that asks for loss scaling.
std::string flag_of_scaling(const JobOptions& job) {
  if (job.loss_scale != "auto") return "--loss-scale " + job.loss_scale;
  return job.precision == "f16" ? "--precision f16" : "--comm-dtype " + job.comm_dtype;
}

}  // namespace

void check_asynchronous(const JobOptions& job, const worker::StrategyKind& kind) {
  const auto refuse = [&](bool given, const std::string& flag, const char* why) {
    if (given)
      fail(ErrorKind::usage, "{}: {}, and under --consistency {} each push is an update", flag, why, job.consistency);
  };
  refuse(kind.scatters, "--strategy " + job.strategy, "worker 0 hands out every step's samples");
  refuse(job.optimizer_on == "worker", "--optimizer-on worker", "workers update with the mean of all");
  refuse(job.aggregate != "mean", "--aggregate " + job.aggregate, "it takes the gradients of all");
  refuse(job.local_reduce, "--local-reduce", "a host pushes the sum of its workers'");
  refuse(job.backup_workers > 0, "--backup-workers", "an update waits for some of the workers");
  refuse(kind.at_owner && job.accumulate > 1, "--accumulate with --strategy " + job.strategy,
         "servers add micro-batches of all up");
  refuse(kind.at_owner && job.clip_norm > 0, "--clip-norm with --strategy " + job.strategy,
         "a worker has to have its whole gradient to clip it");
  refuse(job.checkpoint_every > 0, "--checkpoint-every", "a checkpoint is of one step of all");
  refuse(optim::loss_scaler(job).active(), flag_of_scaling(job), "a step that is skipped is one of all workers");
}

/// A worker that is late goes on where the servers are: what they did in the updates between, it does not hear.
void check_backup_workers(const JobOptions& job) {
  if (job.backup_workers == 0) return;
  const std::string flag = fmt::format("--backup-workers {}", job.backup_workers);
  if (job.backup_workers >= job.workers) fail(ErrorKind::usage, "{}: of {} workers", flag, job.workers);
  const auto refuse = [&](bool given, const std::string& other, const char* why) {
    if (given) fail(ErrorKind::usage, "{} with {}: {}", flag, other, why);
  };
  refuse(job.local_reduce, "--local-reduce", "one worker pushes for all of a host");
  refuse(job.optimizer_on == "worker", "--optimizer-on worker",
         "a late worker would miss updates, which servers do not keep: --optimizer-on server");
  refuse(optim::loss_scaler(job).active(), flag_of_scaling(job),
         "a late worker would not hear which steps were skipped: --precision bf16, or --loss-scale off");
}

void check_compression(const JobOptions& job) {
  if (!optim::make_codec(job.compress, job.error_feedback)) return;
  const std::string flag = "--compress " + job.compress;
  if (job.precision != "f32" && job.comm_dtype != "f32")
    fail(ErrorKind::usage, "{}: it is of gradients in f32: --comm-dtype f32", flag);
  if (!job.comm_dtype.empty() && job.comm_dtype != "f32")
    fail(ErrorKind::usage, "{}: it is of gradients in f32, not --comm-dtype {}", flag, job.comm_dtype);
  if (job.error_feedback && job.checkpoint_every > 0 && job.backup_workers > 0)
    fail(ErrorKind::usage,
         "{}: with --backup-workers a worker may pass by the step of a checkpoint, which then lacks what its error "
         "feedback keeps: --error-feedback off",
         flag);
}

bool hits_somebody(const Fault& fault, const JobOptions& job) {
  const std::size_t count = fault.role == net::Role::server   ? job.servers * (1 + job.replicas)
                            : fault.role == net::Role::worker ? job.workers
                                                              : 1;
  return fault.rank.value_or(0) < count;
}

void check_faults(const JobOptions& job, const worker::StrategyKind& kind) {
  for (const Fault& fault : parse_faults(job.fault)) {
    if (fault.rank && !hits_somebody(fault, job))
      fail(ErrorKind::usage, "--fault {}: strategy {} has no {} {} here", job.fault, job.strategy,
           to_string(fault.role), *fault.rank);
    if (fault.kind == Fault::Kind::link && job.link.empty())
      fail(ErrorKind::usage, "--fault {}: it changes one process's card: give all of them one with --link", job.fault);
    if (!fault.hits_frames()) continue;
    if (kind.one_worker) fail(ErrorKind::usage, "--fault {}: strategy {} sends no frames", job.fault, job.strategy);
    if (net::parse_way(job.transport) == net::Way::shm)
      fail(ErrorKind::usage, "--fault {}: frames suffer over TCP; --transport shm has none", job.fault);
    if (job.placement == "colocated")
      fail(ErrorKind::usage, "--fault {}: what stays in a process is no frame: --placement standalone", job.fault);
  }
}

void check_device(const JobOptions& job, const worker::StrategyKind& kind) {
  if (job.device == "cpu" && job.share_gpu) fail(ErrorKind::usage, "--share-gpu: --device cpu has no GPU");
  if (job.device == "cuda" && kind.ring) check_nccl(job);
  if (!job.cuda_graphs && job.device == "cpu" && job.server_device == "cpu")
    fail(ErrorKind::usage, "--cuda-graphs off: --device cpu has none");
  const auto refuse = [](bool wrong, const std::string& what) {
    if (wrong) fail(ErrorKind::usage, "--server-device cuda: {} is the host's alone", what);
  };
  if (job.server_device == "cpu") return;
  refuse(!kind.servers, "--strategy " + job.strategy);
  refuse(job.optimizer == "lamb", "--optimizer lamb");
  refuse(job.optimizer_on == "worker", "--optimizer-on worker");
  refuse(job.remedy.starts_with("dc-asgd"), "--remedy " + job.remedy);
  refuse(job.replicas > 0, "--replicas");
}

void check_in_place(const JobOptions& job) {
  const JobOptions defaults;
  const auto needs_memory = [](const std::string& flag) {
    fail(ErrorKind::usage, "--share-host-parameters: it needs shared memory, not {}", flag);
  };
  if (!job.link.empty()) needs_memory("--link " + job.link);
  if (job.transport == "tcp") needs_memory("--transport tcp");
  if (frame_faults(job.fault, 0, {})) needs_memory("the frames of --fault " + job.fault);
  if (job.algorithm != "auto" && job.algorithm != "direct")
    needs_memory("the messages of --algorithm " + job.algorithm);
  if (job.prefetch != defaults.prefetch)
    fail(ErrorKind::usage, "--prefetch {}: with --share-host-parameters nothing is gathered", job.prefetch);
  if (!job.reshard_after_forward)
    fail(ErrorKind::usage, "--reshard-after-forward off: with --share-host-parameters nothing is gathered");
}

void check_replicas(const JobOptions& job) {
  if (job.replicas == 0) return;
  const auto refuse = [&](bool given, const std::string& flag, const char* why) {
    if (given) fail(ErrorKind::usage, "--replicas {}: {}: {}", job.replicas, flag, why);
  };
  if (job.replicas > 1) fail(ErrorKind::usage, "--replicas: expected 0 or 1, got {}", job.replicas);
  refuse(parse_consistency(job.consistency).each_push_updates, "--consistency " + job.consistency,
         "what servers have is never that of one step");
  refuse(job.placement != "standalone", "--placement " + job.placement, "a follower is a server's, not a worker's");
  refuse(job.optimizer_on == "worker", "--optimizer-on worker", "its servers keep nothing from one step to the next");
  refuse(job.optimizer == "lamb", "--optimizer lamb", "its update takes two rounds, and may be cut between them");
  refuse(job.recovery == "checkpoint", "--recovery checkpoint", "followers would never take their servers' places");
  refuse(job.backup_workers > 0, "--backup-workers", "which gradients an update took would not be known");
}

void check_elastic(const JobOptions& job, const std::string& range) {
  if (job.min_workers == 0) return;
  const auto refuse = [&](bool given, const std::string& flag, const char* why) {
    if (given) fail(ErrorKind::usage, "--elastic {}: {}: {}", range, flag, why);
  };
  refuse(range.substr(range.find(':') + 1) != std::to_string(job.workers), fmt::format("--workers {}", job.workers),
         "it begins with MAX workers");
  refuse(parse_consistency(job.consistency).each_push_updates, "--consistency " + job.consistency,
         "each worker counts its own steps");
  refuse(job.placement != "standalone", "--placement " + job.placement, "a server goes with its worker");
  refuse(job.backup_workers > 0, "--backup-workers", "it says how many workers may be late, not lost");
  refuse(job.local_reduce, "--local-reduce", "a host's workers are one source together");
  refuse(!job.shard_group.empty(), "--shard-group", "groups are as large as each other");
  refuse(job.aggregate != "mean", "--aggregate " + job.aggregate, "gradients are weighted by samples");
}

}  // namespace psring::cli
