#include <string>
#include <vector>

#include <psring/cli/options/refused_pairs.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/data_links.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/optim/job_optimizer.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/worker/pace.h>

// Each function holds the refused pairs of one topic: a row is a condition and the line of the error.

namespace psring::cli {
namespace {

struct Row {
  bool refused;
  std::string line;
};
using Rows = std::vector<Row>;

/// Throws usage with the line of the first row that is refused.
void refuse(const Rows& rows) {
  for (const Row& row : rows)
    if (row.refused) throw Error(ErrorKind::usage, row.line);
}

/// The option that asks for loss scaling.
std::string flag_of_scaling(const JobOptions& job) {
  if (job.loss_scale != "auto") return "--loss-scale " + job.loss_scale;
  return job.precision == "f16" ? "--precision f16" : "--comm-dtype " + job.comm_dtype;
}

/// The option that places servers elsewhere than in processes of their own.
std::string flag_of_placement(const JobOptions& job) {
  return job.placement == "mixed" ? fmt::format("--servers mixed:{}", job.standalone_servers())
                                  : "--placement " + job.placement;
}

bool has_frame_faults(const JobOptions& job) { return frame_faults(job.fault, 0, {}).has_value(); }

void check_length_and_batch(const JobOptions& job, const options::Given& given) {
  refuse({
      {job.steps && given.contains("epochs"), "--steps and --epochs: give one of them"},
      {job.accumulate > job.batch_per_worker(),
       fmt::format("--accumulate {}: a worker's batch has only {} samples", job.accumulate, job.batch_per_worker())},
      {!job.master_copy && job.precision == "f32",
       "--master-copy off: with --precision f32 there are no master weights"},
  });
}

void check_checkpoints(const JobOptions& job) {
  const bool none = job.checkpoint_every == 0;
  refuse({
      {!job.resume.empty() && !job.init.empty(), "--resume and --init: give one of them"},
      {job.other_data && job.resume.empty(), "--other-data: means nothing without --resume"},
      {none && !job.checkpoint_dir.empty(), "--checkpoint-dir: give --checkpoint-every, too"},
      {none && job.checkpoint_keep > 0, "--checkpoint-keep: give --checkpoint-every, too"},
  });
}

void check_servers(const JobOptions& job) {
  const bool weighted = job.aggregate == "mean" || job.aggregate == "sum";
  refuse({
      {job.placement == "colocated" && job.servers > job.workers,
       fmt::format("--servers {}: colocated servers run in the workers' processes, and there are {} workers",
                   job.servers, job.workers)},
      {job.pad == "none" && !weighted,
       fmt::format("--pad none: gradients are weighted by samples; --aggregate: expected mean or sum, got '{}'",
                   job.aggregate)},
      {job.local_reduce && !weighted,
       fmt::format("--local-reduce: servers get sums; --aggregate: expected mean or sum, got '{}'", job.aggregate)},
      {job.local_reduce && !job.link.empty(),
       fmt::format("--local-reduce: with --link {} each worker counts as a separate host", job.link)},
  });
}

/// A late worker continues with the servers' values, and does not learn of the updates that it missed.
void check_backup_workers(const JobOptions& job) {
  if (job.backup_workers == 0) return;
  const std::string flag = fmt::format("--backup-workers {}", job.backup_workers);
  const auto pair = [&](bool refused, const std::string& other, const char* reason) {
    return Row{refused, fmt::format("{} with {}: {}", flag, other, reason)};
  };
  refuse({
      {job.backup_workers >= job.workers, fmt::format("{}: must be less than the {} workers", flag, job.workers)},
      pair(job.local_reduce, "--local-reduce", "one worker pushes for all of a host's workers"),
      pair(job.optimizer_on == "worker", "--optimizer-on worker",
           "a late worker would miss updates, which the servers do not keep; use --optimizer-on server"),
      pair(optim::loss_scaler(job).active(), flag_of_scaling(job),
           "a late worker would not learn which steps were skipped; use --precision bf16 or --loss-scale off"),
  });
}

/// Compression takes gradients in f32, and a checkpoint needs the error feedback of all workers at one step.
void check_compression(const JobOptions& job, const worker::StrategyKind& kind) {
  if (!optim::compresses(job.compress)) return;
  const std::string flag = "--compress " + job.compress;
  refuse({
      {job.precision != "f32" && job.comm_dtype != "f32",
       fmt::format("{}: compression needs gradients in f32; add --comm-dtype f32", flag)},
      {!job.comm_dtype.empty() && job.comm_dtype != "f32",
       fmt::format("{}: compression needs gradients in f32, not --comm-dtype {}", flag, job.comm_dtype)},
      {job.error_feedback && job.checkpoint_every > 0 && job.backup_workers > 0,
       fmt::format(
           "{}: with --backup-workers a worker may skip the step of a checkpoint, which then lacks the worker's "
           "error feedback; use --error-feedback off",
           flag)},
  });
  if (!optim::power_sgd_rank(job.compress)) return;
  const auto pair = [&](bool refused, const std::string& other) {
    return Row{refused,
               fmt::format("{}: it needs an all-reduce of whole gradients (ddp or zero1), not {}", flag, other)};
  };
  refuse({
      pair(!kind.ring || kind.at_owner, "--strategy " + job.strategy),
      pair(!job.shard_group.empty(), "--shard-group " + job.shard_group),
      {job.device == "cuda", fmt::format("{}: it runs only on the host, not with --device cuda", flag)},
  });
}

void check_faults(const JobOptions& job, const worker::StrategyKind& kind) {
  const std::string flag = "--fault " + job.fault;
  for (const Fault& fault : parse_faults(job.fault))
    refuse({
        {fault.rank && !hits_somebody(fault, job), fmt::format("{}: strategy {} has no {} {} here", flag, job.strategy,
                                                               to_string(fault.role), fault.rank.value_or(0))},
        {fault.kind == Fault::Kind::link && job.link.empty(),
         fmt::format("{}: it changes one process's network card; give all processes a card with --link", flag)},
        {fault.hits_frames() && kind.one_worker, fmt::format("{}: strategy {} sends no frames", flag, job.strategy)},
        {fault.hits_frames() && job.transport == "shm",
         fmt::format("{}: frame faults need TCP; --transport shm sends no frames", flag)},
        {fault.hits_frames() && job.placement != "standalone",
         fmt::format("{} with {}: within a process no frames are sent; use standalone servers", flag,
                     job.placement == "mixed" ? "--servers mixed" : "--placement colocated")},
    });
}

/// An update takes one worker's gradient, so that nothing can be asked of all workers' gradients together.
void check_asynchronous(const JobOptions& job, const worker::StrategyKind& kind) {
  if (!parse_consistency(job.consistency).each_push_updates) return;
  const auto pair = [&](bool refused, const std::string& flag, const char* reason) {
    return Row{refused,
               fmt::format("{}: {}, but under --consistency {} each push is an update", flag, reason, job.consistency)};
  };
  const std::string strategy = "--strategy " + job.strategy;
  refuse({
      pair(kind.scatters, strategy, "worker 0 hands out every step's samples"),
      pair(job.optimizer_on == "worker", "--optimizer-on worker", "workers apply the mean of all gradients"),
      pair(job.aggregate != "mean", "--aggregate " + job.aggregate, "the rule needs the gradients of all workers"),
      pair(job.local_reduce, "--local-reduce", "a host pushes the sum of its workers' gradients"),
      pair(job.backup_workers > 0, "--backup-workers", "an update waits for some of the workers"),
      pair(kind.at_owner && job.accumulate > 1, "--accumulate with " + strategy,
           "servers add up the micro-batches of all workers"),
      pair(kind.at_owner && job.clip_norm > 0, "--clip-norm with " + strategy,
           "a worker needs its whole gradient to clip it"),
      pair(job.checkpoint_every > 0, "--checkpoint-every", "a checkpoint holds one step of all workers"),
      pair(optim::loss_scaler(job).active(), flag_of_scaling(job), "all workers skip a step together"),
  });
}

void check_network(const JobOptions& job, const options::Given& given) {
  const bool shm = job.transport == "shm";
  refuse({
      {!job.link.empty() && shm, fmt::format("--link {}: shapes TCP; --transport shm has no link to shape", job.link)},
      {shm && job.streams > 1, fmt::format("--streams {}: --transport shm has no sockets", job.streams)},
      {shm && options::text_of(given, "encrypt") == "on", "--encrypt on: --transport shm has no link to encrypt"},
  });
}

void check_algorithm(const JobOptions& job) {
  if (job.algorithm == "auto") return;
  const std::string flag = "--algorithm " + job.algorithm;
  if (job.algorithm != "direct") ring::parse_algorithm("--algorithm", job.algorithm);
  const bool direct = job.algorithm == "direct";
  refuse({
      {direct && (job.transport == "tcp" || !job.link.empty()),
       fmt::format("{}: it needs shared memory, not {}", flag, job.link.empty() ? "--transport tcp" : "--link")},
      {direct && has_frame_faults(job),
       fmt::format("{}: it needs shared memory, not the frames of --fault {}", flag, job.fault)},
      {!direct && job.transport == "shm",
       fmt::format("{}: it sends messages; over shared memory use --algorithm direct", flag)},
  });
}

/// --share-host-parameters needs shared memory, and gathers nothing.
void check_shared_parameters(const JobOptions& job) {
  if (!job.share_host_parameters) return;
  const auto pair = [](bool refused, const std::string& flag) {
    return Row{refused, fmt::format("--share-host-parameters: it needs shared memory, not {}", flag)};
  };
  refuse({
      pair(!job.link.empty(), "--link " + job.link),
      pair(job.transport == "tcp", "--transport tcp"),
      pair(has_frame_faults(job), "the frames of --fault " + job.fault),
      pair(job.algorithm != "auto" && job.algorithm != "direct", "the messages of --algorithm " + job.algorithm),
      {job.prefetch != JobOptions().prefetch,
       fmt::format("--prefetch {}: with --share-host-parameters nothing is gathered", job.prefetch)},
      {!job.reshard_after_forward, "--reshard-after-forward off: with --share-host-parameters nothing is gathered"},
  });
}

/// NCCL moves the values between GPUs: psring neither shapes, nor encrypts, nor damages them.
void check_nccl(const JobOptions& job) {
  const JobOptions defaults;
  const auto pair = [&](bool refused, const std::string& flag) {
    return Row{refused, fmt::format("{}: --strategy {} --device cuda goes through NCCL", flag, job.strategy)};
  };
  refuse({
      pair(!job.link.empty(), "--link " + job.link),
      pair(job.transport != defaults.transport, "--transport " + job.transport),
      pair(job.algorithm != defaults.algorithm, "--algorithm " + job.algorithm),
      pair(!job.tuning.empty(), "--tuning"),
      pair(job.streams != defaults.streams, fmt::format("--streams {}", job.streams)),
      pair(job.share_host_parameters, "--share-host-parameters"),
      pair(has_frame_faults(job), "--fault " + job.fault),
      {job.encrypt,
       fmt::format("--strategy {} --device cuda: NCCL encrypts nothing; use --encrypt off if the network can be "
                   "trusted",
                   job.strategy)},
  });
}

void check_devices(const JobOptions& job, const worker::StrategyKind& kind) {
  refuse({
      {job.device == "cpu" && job.share_gpu, "--share-gpu: --device cpu has no GPU"},
      {!job.cuda_graphs && job.device == "cpu" && job.server_device == "cpu",
       "--cuda-graphs off: --device cpu uses no CUDA graphs"},
      {job.optimizer == "adamw-8bit" && job.device == "cuda" && (!kind.servers || job.optimizer_on == "worker"),
       "--optimizer adamw-8bit: it runs only on the host, not with --device cuda"},
  });
  if (job.device == "cuda" && kind.ring) check_nccl(job);
  if (job.server_device == "cpu") return;
  const auto pair = [](bool refused, const std::string& other) {
    return Row{refused, fmt::format("--server-device cuda: {} works only with servers on the host", other)};
  };
  refuse({
      pair(!kind.servers, "--strategy " + job.strategy),
      pair(job.optimizer == "lamb", "--optimizer lamb"),
      pair(job.optimizer == "adamw-8bit", "--optimizer adamw-8bit"),
      pair(job.optimizer_on == "worker", "--optimizer-on worker"),
      pair(job.remedy.starts_with("dc-asgd"), "--remedy " + job.remedy),
      pair(job.replicas > 0, "--replicas"),
  });
}

/// After a loss the remaining workers set up anew everything that depends on the number of workers.
void check_elastic(const JobOptions& job, const std::string& range) {
  if (job.min_workers == 0) return;
  const auto pair = [&](bool refused, const std::string& flag, const char* reason) {
    return Row{refused, fmt::format("--elastic {}: {}: {}", range, flag, reason)};
  };
  refuse({
      pair(range.substr(range.find(':') + 1) != std::to_string(job.workers), fmt::format("--workers {}", job.workers),
           "the job begins with MAX workers"),
      pair(parse_consistency(job.consistency).each_push_updates, "--consistency " + job.consistency,
           "each worker counts its own steps"),
      pair(job.placement != "standalone", flag_of_placement(job), "a colocated server is lost with its worker"),
      pair(job.backup_workers > 0, "--backup-workers", "this option allows workers to be late, not lost"),
      pair(job.local_reduce, "--local-reduce", "a host's workers push as one source"),
      pair(!job.shard_group.empty(), "--shard-group", "all shard groups must have the same size"),
      pair(job.aggregate != "mean", "--aggregate " + job.aggregate, "gradients are weighted by samples"),
  });
}

/// A follower has every update of its server, and takes the server's place.
void check_replicas(const JobOptions& job) {
  if (job.replicas == 0) return;
  const auto pair = [&](bool refused, const std::string& flag, const char* reason) {
    return Row{refused, fmt::format("--replicas {}: {}: {}", job.replicas, flag, reason)};
  };
  refuse({
      pair(parse_consistency(job.consistency).each_push_updates, "--consistency " + job.consistency,
           "the servers' state never belongs to a single step"),
      pair(job.placement != "standalone", flag_of_placement(job), "only standalone servers can have followers"),
      pair(job.optimizer_on == "worker", "--optimizer-on worker", "the servers then keep no state between steps"),
      pair(job.optimizer == "lamb", "--optimizer lamb",
           "its update takes two rounds, and could be interrupted between them"),
      pair(job.recovery == "checkpoint", "--recovery checkpoint", "followers would never replace their servers"),
      pair(job.backup_workers > 0, "--backup-workers", "it would not be known which gradients an update used"),
  });
}

/// Refuses, for servers, options under which copies of a tensor at several workers would not stay alike, or which ask
/// for values of the whole model.
void check_servers_of_mesh(const JobOptions& job, const auto& pair) {
  refuse({
      pair(job.consistency != "bsp", "--consistency " + job.consistency,
           "copies of a tensor at several workers would get updates in different orders"),
      pair(job.backup_workers > 0, "--backup-workers",
           "servers of different parts of the model would leave out different workers"),
      pair(job.local_reduce, "--local-reduce", "workers of a host have different parts of the model"),
      pair(job.replicas > 0, "--replicas", "such a job continues from checkpoints"),
      pair(job.server_device == "cuda", "--server-device cuda", "servers of a mesh make updates on the host"),
      pair(job.optimizer == "lamb", "--optimizer lamb", "servers of different parts of the model have other tensors"),
      pair(job.optimizer_on == "worker", "--optimizer-on worker", "servers of a mesh apply the optimizer"),
  });
}

/// A mesh divides the model between workers that exchange activations by collectives on the host.
void check_model_parallel(const JobOptions& job, const worker::StrategyKind& kind) {
  const Mesh mesh = job.mesh();
  refuse({
      {!job.stages.empty() && mesh.pipeline == 1, fmt::format("--stages {}: give --pipeline, too", job.stages)},
      {job.pipeline_schedule != JobOptions().pipeline_schedule && mesh.pipeline == 1,
       fmt::format("--pipeline-schedule {}: give --pipeline, too", job.pipeline_schedule)},
  });
  if (!mesh.divides_model()) return;
  const std::string flag =
      mesh.pipeline > 1 ? fmt::format("--pipeline {}", mesh.pipeline) : fmt::format("--tensor {}", mesh.tensor);
  const auto pair = [&](bool refused, const std::string& other, const char* reason) {
    return Row{refused, fmt::format("{} with {}: {}", flag, other, reason)};
  };
  refuse({
      pair(job.device == "cuda", "--device cuda", "stages compute on the host alone"),
      pair(job.min_workers > 0, "--elastic", "the remaining workers would lack a part of the model"),
      pair(!job.shard_group.empty(), "--shard-group " + job.shard_group,
           "units are cut among all data-parallel workers"),
      pair(job.share_host_parameters, "--share-host-parameters", "workers of a host have different parts of the model"),
      pair(optim::compresses(job.compress), "--compress " + job.compress, "its state is saved by worker, not by stage"),
      pair(job.optimizer == "lamb" && mesh.tensor > 1, "--optimizer lamb", "its norms are of whole tensors"),
      pair(job.compute != "model" && mesh.tensor > 1, "--compute " + job.compute,
           "layers that only sleep do not sum, so the predicted bytes would not move"),
  });
  if (kind.servers) check_servers_of_mesh(job, pair);
}

}  // namespace

void check_mesh(const JobOptions& job) {
  const std::size_t parts = job.tensor * job.pipeline;
  if (job.workers % parts != 0)
    fail(ErrorKind::usage, "--workers {}: cannot be divided by --tensor {} times --pipeline {}", job.workers,
         job.tensor, job.pipeline);
  if (job.servers % parts != 0)
    fail(
        ErrorKind::usage,
        "--servers {}{}: each of the {} parts of the model needs as many servers; give a multiple of --tensor {} times "
        "--pipeline {}",
        job.placement == "mixed" ? "mixed:" : "", job.placement == "mixed" ? job.standalone_servers() : job.servers,
        parts, job.tensor, job.pipeline);
}

void refuse_pairs(const JobOptions& job, const options::Given& given, const worker::StrategyKind& kind) {
  check_servers(job);
  check_length_and_batch(job, given);
  check_backup_workers(job);
  check_compression(job, kind);
  worker::parse_compute(job.compute);
  check_faults(job, kind);
  check_asynchronous(job, kind);
  check_network(job, given);
  check_shared_parameters(job);
  job.shard_owners();
  check_algorithm(job);
  check_devices(job, kind);
  check_checkpoints(job);
  check_elastic(job, options::text_of(given, "elastic"));
  check_replicas(job);
  check_model_parallel(job, kind);
}

bool hits_somebody(const Fault& fault, const JobOptions& job) {
  const std::size_t count = fault.role == net::Role::server   ? job.servers * (1 + job.replicas)
                            : fault.role == net::Role::worker ? job.workers
                                                              : 1;
  return fault.rank.value_or(0) < count;
}

}  // namespace psring::cli
