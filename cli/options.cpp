#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <psring/cli/option_checks.h>
#include <psring/cli/options.h>
#include <psring/cli/parse.h>
#include <psring/cli/parts.h>
#include <psring/cli/summary.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/error.h>
#include <psring/common/base/folder_lock.h>
#include <psring/common/device/device.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/fault.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/job_optimizer.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/tuning.h>
#include <psring/worker/pace.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostSamples = std::size_t{1} << 32;  // of a step: samples have numbers of 32 bits
constexpr std::size_t kMostThreads = 1024;                  // of one process
constexpr std::size_t kMostBytes = std::size_t{1} << 40;    // of a bucket: all gradients that there can be
constexpr std::size_t kMostRestarts = 1'000'000;
constexpr std::size_t kMostSteps = std::size_t{1} << 32;  // random numbers take a step and an epoch of 32 bits

bool parse_switch(std::string_view flag, const std::string& text, std::string_view expected) {
  if (text == "on") return true;
  if (text == "off") return false;
  fail(ErrorKind::usage, "{}: expected {}, got '{}'", flag, expected, text);
}

/// 0 is off.
void not_negative(std::string_view flag, double value) {
  if (!(value >= 0 && std::isfinite(value)))
    fail(ErrorKind::usage, "{}: expected a number >= 0, got {:g}", flag, value);
}

void one_of(std::string_view flag, const std::string& text, const std::string& first, const std::string& second) {
  if (text != first && text != second)
    fail(ErrorKind::usage, "{}: expected {} or {}, got '{}'", flag, first, second, text);
}

void parse_betas(const std::string& text, JobOptions& job) {
  if (text.empty()) return;
  const std::size_t comma = text.find(',');
  const auto number = [&](std::string_view part) {
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || part.empty())
      fail(ErrorKind::usage, "--betas: expected two numbers such as 0.9,0.999, got '{}'", text);
    return value;
  };
  if (comma == std::string::npos) number("");
  job.beta1 = number(std::string_view(text).substr(0, comma));
  job.beta2 = number(std::string_view(text).substr(comma + 1));
}

std::size_t global_batch(const JobFlags& flags, const JobOptions& job) {
  if (flags.global_batch && flags.batch_size)
    fail(ErrorKind::usage, "--batch-size is per worker and --global-batch for all: give one of them");
  const std::size_t parts = job.workers * job.virtual_workers;
  if (flags.batch_size) check_count("--batch-size", *flags.batch_size, kMostSamples / parts);
  const std::size_t batch =
      flags.batch_size ? *flags.batch_size * parts : flags.global_batch.value_or(job.global_batch);
  check_count("--global-batch", batch, kMostSamples);
  if (batch % parts != 0)
    fail(ErrorKind::usage, "--global-batch {}: cannot be divided evenly among {} workers", batch, parts);
  return batch;
}

/// --elastic MIN:MAX, as MIN and MAX.
std::optional<std::pair<std::size_t, std::size_t>> parse_elastic(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::pair<std::size_t, std::size_t> range;
  const auto parse = [](std::string_view part, std::size_t& out) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
    return error == std::errc() && end == part.data() + part.size() && out > 0;
  };
  const std::string_view all = text;
  const std::size_t colon = all.find(':');
  if (colon == std::string::npos || !parse(all.substr(0, colon), range.first) ||
      !parse(all.substr(colon + 1), range.second) || range.first > range.second)
    fail(ErrorKind::usage, "--elastic: expected MIN:MAX workers, such as 2:4, got '{}'", text);
  return range;
}

/// Options that only some strategies have: elsewhere they are a usage error, or left out, which is their defaults.
class Fitting {
 public:
  Fitting(const std::string& strategy, LeftOut* left_out) : strategy_(strategy), left_out_(left_out) {}
  template <class Value>
  void operator()(JobOptions& job, const char* flag, Value JobOptions::*which, bool fits, const char* why) const {
    Value& value = job.*which;
    const Value& standard = defaults_.*which;
    if (fits || value == standard) return;
    refuse(flag, fmt::format("{}{}: strategy {} {}", flag, as_given(value), strategy_, why));
    value = standard;
  }
  void refuse(const char* flag, const std::string& line) const {
    if (left_out_ == nullptr) throw Error(ErrorKind::usage, line);
    left_out_->emplace(flag, line);
  }

 private:
  /// What is off by default is a flag, without a value.
  static const char* as_given(bool value) { return value ? "" : " off"; }
  static std::string as_given(const std::string& value) { return " " + value; }
  static std::string as_given(std::size_t value) { return fmt::format(" {}", value); }

  const JobOptions defaults_;
  const std::string& strategy_;
  LeftOut* const left_out_;
};

/// What --resume continues from is chosen, and checkpoints do not fall among those of another run, where they could be
/// taken for its newest.
void resolve_checkpoints(JobOptions& job) {
  namespace fs = std::filesystem;
  std::uint64_t first_step = 0;
  std::error_code no_run;
  if (!job.resume.empty()) {
    if (!job.init.empty()) fail(ErrorKind::usage, "--resume and --init: give one of them");
    try {
      const bool is_run = fs::exists(fs::path(job.resume) / kManifestFile, no_run);
      job.resume = (is_run ? newest_whole_checkpoint(job_of_run(fs::absolute(job.resume)), Damaged::leave)
                           : optim::find_checkpoint(job.resume))
                       .string();
      first_step = optim::Checkpoint(job.resume).step();
    } catch (const Error& error) {
      throw error.with_context("--resume");
    }
  }
  if (job.checkpoint_every == 0) {
    if (!job.checkpoint_dir.empty()) fail(ErrorKind::usage, "--checkpoint-dir: give --checkpoint-every, too");
    if (job.checkpoint_keep > 0) fail(ErrorKind::usage, "--checkpoint-keep: give --checkpoint-every, too");
  }
  if (job.checkpoint_dir.empty()) return;
  job.checkpoint_dir = fs::absolute(job.checkpoint_dir).string();
  if (FolderLock::is_kept(job.checkpoint_dir))
    fail(ErrorKind::usage, "--checkpoint-dir {}: another run saves there; choose another folder", job.checkpoint_dir);
  const auto there = optim::CheckpointFolder(job.checkpoint_dir).complete();
  if (!there.empty() && there.back().step > first_step)
    fail(ErrorKind::usage, "--checkpoint-dir {}: has a checkpoint of step {}; --resume it, or choose another folder",
         job.checkpoint_dir, there.back().step);
}

std::size_t servers(const JobFlags& flags, const JobOptions& job, const worker::StrategyKind& kind) {
  if (!kind.servers) return 0;
  if (kind.one_server) return 1;
  return flags.servers.value_or(job.placement == "colocated" ? job.workers : job.servers);
}

std::string placement(const JobFlags& flags, const std::string& strategy, const worker::StrategyKind& kind,
                      const Fitting& fit) {
  const std::string own = kind.colocated ? "colocated" : "standalone";
  const std::string wanted = flags.placement.value_or(own);
  one_of("--placement", wanted, "standalone", "colocated");
  if (wanted == own || (kind.servers && !kind.colocated)) return wanted;
  fit.refuse("--placement", fmt::format("--placement {}: strategy {} {}", wanted, strategy,
                                        kind.servers ? "has its servers in workers' processes" : "has no servers"));
  return own;
}

}  // namespace

void check_count(std::string_view flag, std::size_t value, std::size_t most) {
  if (value == 0) fail(ErrorKind::usage, "{}: expected a number > 0", flag);
  if (value > most) fail(ErrorKind::usage, "{}: expected a number up to {}, got {}", flag, most, value);
}

void check_duration(std::string_view flag, double value, double least) {
  constexpr double kYear = 365.0 * 86400;
  if (!(value >= least && value <= kYear))
    fail(ErrorKind::usage, "{}: expected seconds from {:g} to {:g}, got {:g}", flag, least, kYear, value);
}

void add_job_flags(CLI::App& command, JobFlags& flags) {
  JobOptions& job = flags.job;
  const char* what = "What is trained";
  command.add_option("--model", job.model, "NAME:KEYS such as mlp:784-512-512-10, gpt:layers=4,dim=128; listed below")
      ->group(what)
      ->capture_default_str();
  command.add_option("--data", job.data, "fashion-mnist, idx:DIR, text:FILE, tokens:FILE, synthetic")
      ->group(what)
      ->capture_default_str();
  command.add_option("--global-batch", flags.global_batch, "samples of a step, over all workers (128)")->group(what);
  command.add_option("--batch-size", flags.batch_size, "samples of a step, of each worker")->group(what);
  command
      .add_option("--accumulate-at", job.accumulate_at,
                  "single: add micro-batches up as local (ddp, ps, zero1) or owner (zero2, zero3) do")
      ->group(what)
      ->capture_default_str();
  command.add_option("--accumulate", job.accumulate, "micro-batches that a step's batch is cut into")
      ->group(what)
      ->capture_default_str();
  command.add_option("--steps", job.steps, "updates")->group(what);
  command.add_option("--epochs", flags.epochs, "passes over the data, where no --steps are given (1)")->group(what);
  command.add_option("--eval-every", job.eval_every, "steps between evaluations on the test set; 0: at the end")
      ->group(what)
      ->capture_default_str();
  command.add_option("--seed", job.seed, "of initial parameters and shuffling")->group(what)->capture_default_str();
  command.add_option("--shuffle", job.shuffle, "epoch or none")->group(what)->capture_default_str();
  command.add_option("--pad", job.pad, "wrap, so that all workers have as many samples, or none")
      ->group(what)
      ->capture_default_str();
  command
      .add_option(
          "--freeze", job.freeze,
          "units that keep their values: names, numbers from 0, h.0 or h.* for all whose tensors begin so; with commas")
      ->group(what);
  command.add_option("--init", job.init, "a safetensors file to start from")->group(what);

  command
      .add_option("--compute", job.compute,
                  "model, or sleep:50ms: a step's forward and backward stand still so long; all gradients are zero")
      ->group(what)
      ->capture_default_str();

  const char* optimizer = "Optimizer (as in PyTorch)";
  command.add_option("--optimizer", job.optimizer, "sgd, momentum, adagrad, rmsprop, adam, adamw, lamb")
      ->group(optimizer)
      ->capture_default_str();
  command.add_option("--lr", job.lr, "learning rate (sgd, momentum 0.1; adagrad, rmsprop 0.01; others 0.001)")
      ->group(optimizer);
  command.add_option("--momentum", job.momentum, "of sgd, momentum")->group(optimizer);
  command.add_flag("--nesterov", job.nesterov, "Nesterov's momentum")->group(optimizer);
  command.add_option("--weight-decay", job.weight_decay, "")->group(optimizer);
  command.add_option("--betas", flags.betas, "of Adam and its kin: 0.9,0.999")->group(optimizer);
  command.add_option("--eps", job.eps, "")->group(optimizer);
  command.add_option("--alpha", job.alpha, "of rmsprop")->group(optimizer);
  command.add_option("--clip-norm", job.clip_norm, "clip gradients to this global norm; 0: off")
      ->group(optimizer)
      ->capture_default_str();
  command.add_option("--schedule", job.schedule, "constant, step:every=N,gamma=G, cosine:warmup=N,min=F")
      ->group(optimizer)
      ->capture_default_str();

  const char* precision = "Precision and memory";
  command.add_option("--precision", job.precision, "of parameters and activations: f32, bf16 or f16")
      ->group(precision)
      ->capture_default_str();
  command.add_option("--comm-dtype", job.comm_dtype, "of gradients, as they are kept and sent (as --precision)")
      ->group(precision);
  command
      .add_option("--loss-scale", job.loss_scale, "auto (dynamic for f16, else off), dynamic, off, or a power of two")
      ->group(precision)
      ->capture_default_str();
  command
      .add_option("--master-copy", flags.master_copy,
                  "on: owners keep narrow parameters in f32, too; off: they update the narrow ones")
      ->group(precision)
      ->capture_default_str();

  command
      .add_option("--activation-checkpointing", job.activation_checkpointing,
                  "off, or unit: keep a unit's input alone, and compute the rest again for backward")
      ->group(precision)
      ->capture_default_str();

  const char* checkpoints = "Checkpoints";
  command
      .add_option("--checkpoint-every", job.checkpoint_every, "steps between checkpoints, and one at the end; 0: none")
      ->group(checkpoints)
      ->capture_default_str();
  command
      .add_option("--checkpoint-dir", job.checkpoint_dir, "folder that all processes see (checkpoints/ in the run's)")
      ->group(checkpoints);
  command.add_option("--checkpoint-keep", job.checkpoint_keep, "keep the newest so many; 0: all")
      ->group(checkpoints)
      ->capture_default_str();
  command
      .add_option("--resume", job.resume, "a checkpoint to continue from, or a folder of them or of a run: the newest")
      ->group(checkpoints);

  const char* exchange = "Exchange";
  command.add_option("--workers", flags.workers, "worker processes (2)")->group(exchange);
  command.add_option("--servers", flags.servers, "servers (1; colocated: as many as workers)")->group(exchange);
  command
      .add_option("--placement", flags.placement,
                  "of servers: standalone, or colocated (server r in worker r's process; ps-colocated)")
      ->group(exchange);
  command.add_option("--virtual-workers", job.virtual_workers, "single: repeat the arithmetic of so many workers")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--units", job.units,
                  "what moves together: layer, block, root (all), N layers each, or sets: 0+3,1+2")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--consistency", flags.consistency,
                  "bsp (all in step), ssp:K (up to K steps ahead of the slowest) or asp (nobody waits)")
      ->group(exchange);
  command
      .add_option("--remedy", job.remedy,
                  "ssp, asp: none, scale-lr (rate / (1 + staleness)) or dc-asgd:lambda=L (delay compensation)")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--backup-workers", job.backup_workers,
                  "bsp: an update takes the gradients of the first workers, all but so many")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--compress", job.compress,
                  "gradients on their way: none, bf16, int8, sign (1 bit), top-k:ratio=R, random-k:ratio=R (0.01)")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--error-feedback", flags.error_feedback,
                  "on: what --compress loses is added to the next gradient; off")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--optimizer-on", flags.optimizer_on, "server, or worker (servers only aggregate; dp)")
      ->group(exchange);
  command
      .add_flag("--local-reduce", job.local_reduce,
                "workers of a host add gradients up in shared memory, and one of them pushes")
      ->group(exchange);
  command.add_option("--aggregate", job.aggregate, "mean, sum, median, trimmed-mean:k=1")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--algorithm", job.algorithm,
                  "of all-reduces: auto, direct, exchange, doubling, halving-doubling, ring, star")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--tuning", flags.tuning, "file of psring-bench all_reduce --tune: which algorithm auto takes")
      ->group(exchange);
  command.add_option("--streams", job.streams, "sockets of each TCP link between workers")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--bucket", flags.bucket, "ddp, zero1: bytes of gradients that are reduced together")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--bucket-order", job.bucket_order, "ddp, zero1: reverse (as backward completes them) or forward")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--overlap", flags.overlap, "ddp, zero1: on, or off (all of it after backward)")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--prefetch", job.prefetch, "zero3, ps-zero3: units that are gathered ahead, 0, 1 or 2")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--reshard-after-forward", flags.reshard_after_forward,
                  "zero3, ps-zero3: on, or off (parameters stay until backward is through)")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_flag("--share-host-parameters", job.share_host_parameters,
                "zero3: parameters lie once in the host's shared memory, and are read there, not gathered")
      ->group(exchange);
  command
      .add_option("--shard-group", job.shard_group,
                  "zero1, zero2, zero3: cut among the workers of a host, or N workers each; replicas between (all)")
      ->group(exchange);
  command.add_option("--transport", job.transport, "auto, shm or tcp")->group(exchange)->capture_default_str();
  command
      .add_option("--link", job.link,
                  "RATE[,DELAY] such as 1gbit,0.2ms: shape TCP as if each process were a host with this network card")
      ->group(exchange);
  command.add_option("--encrypt", flags.encrypt, "data links: on, off, or auto (off on loopback)")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--server-threads", job.server_threads, "of each server")->group(exchange)->capture_default_str();
  command.add_option("--device", job.device, "that workers compute on: cpu or cuda")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--server-device", job.server_device, "that servers add up and update on: cpu or cuda")
      ->group(exchange)
      ->capture_default_str();
  command.add_flag("--share-gpu", job.share_gpu, "several workers may compute on one GPU, to teach and to test")
      ->group(exchange);
  command
      .add_option("--cuda-graphs", flags.cuda_graphs,
                  "on: kernels that come again leave for a GPU together; off: one by one")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--threads", job.threads, "compute threads of each worker")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--heartbeat-timeout", job.heartbeat_timeout, "seconds of silence after which a peer is lost")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--max-restarts", job.max_restarts,
                  "lost processes that are started again, so that the job goes on; 0: the first loss ends it")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option(
          "--elastic", flags.elastic,
          "MIN:MAX: begin with MAX workers, and go on with fewer, down to MIN, where lost ones cannot be started "
          "again; the global batch stays")
      ->group(exchange);
  command
      .add_option(
          "--recovery", job.recovery,
          "what a job goes on with after a loss: auto, what servers or workers have where that is all of it; or "
          "checkpoint, the newest, or the beginning")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option("--replicas", job.replicas,
                  "1: a follower of each server has every update before anybody is told of it, and takes its place")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--join-timeout", job.join_timeout, "seconds for all processes to join")
      ->group(exchange)
      ->capture_default_str();
  command.add_option("--op-timeout", job.op_timeout, "seconds of one wait for values; 0: as long as the peer lives")
      ->group(exchange)
      ->capture_default_str();
  command
      .add_option(
          "--fault", job.fault,
          "trouble on purpose, with blanks between: slow:worker:1=4x, jitter:worker:*=20%, link:worker:2=10mbit, "
          "drop:worker:1=1% (or duplicate, reorder, corrupt), "
          "kill:server:0@step=20, stop:worker:1@time=2s")
      ->group(exchange);
  command.add_option("--trace", flags.trace, "on: write trace.json (Chrome trace, opens in Perfetto)")
      ->group(exchange)
      ->capture_default_str();
  add_config(command);
}

/// Who has all that the others need to go on with the same bits after a loss. Of what error feedback keeps nobody but
/// its worker has any, nor of layers' buffers; see also fill_in. Backup workers' gradients may be lost for good. LAMB
/// changes its state before a step is known to be done. Workers of a host that add up are one source together.
void resolve_recovery(JobOptions& job, const worker::StrategyKind& kind) {
  one_of("--recovery", job.recovery, "auto", "checkpoint");
  check_replicas(job);
  if (job.recovery == "checkpoint") return;
  const bool feedback = job.error_feedback && optim::make_codec(job.compress, job.error_feedback) != nullptr;
  const bool kept = !feedback && job.backup_workers == 0 && job.optimizer != "lamb" && !job.local_reduce;
  if (kept && kind.servers && job.placement == "standalone" && job.optimizer_on == "server")
    job.recovery = "servers";
  else
    job.recovery = kept && kind.whole ? "workers" : "checkpoint";
  if (job.replicas > 0 && job.recovery != "servers")
    fail(ErrorKind::usage,
         "--replicas {}: such a job goes on from checkpoints (docs/faults.md), and followers would never take their "
         "servers' places",
         job.replicas);
}

JobOptions resolve(const JobFlags& flags, const std::string& strategy, const worker::StrategyKind& kind,
                   LeftOut* left_out, bool loopback) {
  JobOptions job = flags.job;
  job.strategy = strategy;
  const auto elastic = parse_elastic(flags.elastic);
  job.min_workers = elastic ? elastic->first : 0;
  job.workers = kind.one_worker ? 1 : flags.workers.value_or(elastic ? elastic->second : job.workers);
  const Fitting fit{strategy, left_out};
  job.placement = placement(flags, strategy, kind, fit);
  const bool colocated = job.placement == "colocated";
  job.servers = servers(flags, job, kind);
  if (kind.one_server && flags.servers.value_or(1) != 1)
    fit.refuse("--servers", fmt::format("--servers {}: strategy {} has one", *flags.servers, strategy));
  if (kind.one_worker && flags.workers.value_or(1) != 1)
    fit.refuse("--workers",
               fmt::format("--workers {}: strategy {} is one process; --virtual-workers repeats the arithmetic of "
                           "several",
                           *flags.workers, strategy));
  if (!kind.servers && flags.servers.value_or(0) != 0)
    fit.refuse("--servers", fmt::format("--servers {}: strategy {} has none", *flags.servers, strategy));
  fit(job, "--virtual-workers", &JobOptions::virtual_workers, kind.one_worker, "is not one process");
  job.optimizer_on = flags.optimizer_on.value_or(kind.optimizer_on);
  fit(job, "--optimizer-on", &JobOptions::optimizer_on, kind.servers, "has no servers");
  job.consistency = flags.consistency.value_or(kind.consistency);
  const bool each_push_updates = parse_consistency(job.consistency).each_push_updates;
  parse_remedy(job.remedy);
  fit(job, "--consistency", &JobOptions::consistency, kind.servers, "has no servers: it is bsp by nature");
  fit(job, "--remedy", &JobOptions::remedy, each_push_updates,
      "has no stale gradients: --consistency ssp:K or asp has");
  fit(job, "--backup-workers", &JobOptions::backup_workers, kind.servers && !kind.scatters,
      kind.servers ? "waits for all" : "has no servers");
  fit(job, "--aggregate", &JobOptions::aggregate, kind.servers, "has no servers");
  fit(job, "--server-threads", &JobOptions::server_threads, kind.servers, "has no servers");
  fit(job, "--replicas", &JobOptions::replicas, kind.servers, "has no servers");
  if (kind.one_worker && elastic) {
    fit.refuse("--elastic", fmt::format("--elastic {}: strategy {} is one process", flags.elastic, strategy));
    job.min_workers = 0;
  }
  check_count("--workers", job.workers, kMostProcesses);
  if (kind.servers) check_count("--servers", job.servers, kMostProcesses);
  if (colocated && job.servers > job.workers)
    fail(ErrorKind::usage, "--servers {}: colocated servers live in workers' processes, and there are {} of those",
         job.servers, job.workers);
  check_count("--virtual-workers", job.virtual_workers, kMostProcesses);
  check_count("--server-threads", job.server_threads, kMostThreads);
  check_count("--threads", job.threads, kMostThreads);
  if (job.steps && flags.epochs) fail(ErrorKind::usage, "--steps and --epochs: give one of them");
  if (job.steps) check_count("--steps", *job.steps, kMostSteps);
  job.epochs = flags.epochs.value_or(1);
  check_count("--epochs", job.epochs, kMostSteps);
  job.global_batch = global_batch(flags, job);
  check_count("--accumulate", job.accumulate, kMostSamples);
  if (job.accumulate > job.batch_per_worker())
    fail(ErrorKind::usage, "--accumulate {}: a worker's batch has only {} samples", job.accumulate,
         job.batch_per_worker());
  one_of("--accumulate-at", job.accumulate_at, "local", "owner");
  fit(job, "--accumulate-at", &JobOptions::accumulate_at, kind.one_worker, "adds them up where it does");
  if (job.lr && !(*job.lr > 0 && std::isfinite(*job.lr)))
    fail(ErrorKind::usage, "--lr: expected a number > 0, got {:g}", *job.lr);
  not_negative("--clip-norm", job.clip_norm);
  check_duration("--heartbeat-timeout", job.heartbeat_timeout, 0.1);
  check_duration("--join-timeout", job.join_timeout, 0.1);
  check_duration("--op-timeout", job.op_timeout, 0);
  one_of("--activation-checkpointing", job.activation_checkpointing, "off", "unit");
  one_of("--shuffle", job.shuffle, "epoch", "none");
  one_of("--pad", job.pad, "wrap", "none");
  if (job.pad == "none" && job.aggregate != "mean" && job.aggregate != "sum")
    fail(ErrorKind::usage, "--pad none: gradients are weighted by samples; --aggregate: expected mean or sum, got '{}'",
         job.aggregate);
  one_of("--optimizer-on", job.optimizer_on, "server", "worker");
  fit(job, "--local-reduce", &JobOptions::local_reduce, kind.servers && !kind.scatters,
      kind.servers ? "has one push a worker" : "has no servers");
  if (job.local_reduce && job.aggregate != "mean" && job.aggregate != "sum")
    fail(ErrorKind::usage, "--local-reduce: servers get sums; --aggregate: expected mean or sum, got '{}'",
         job.aggregate);
  check_backup_workers(job);
  job.cuda_graphs = parse_switch("--cuda-graphs", flags.cuda_graphs, "on or off");
  job.error_feedback = parse_switch("--error-feedback", flags.error_feedback, "on or off");
  fit(job, "--compress", &JobOptions::compress, kind.compresses, "sends no gradients that it could compress");
  check_compression(job);
  worker::parse_compute(job.compute);
  if (left_out != nullptr) {
    job.fault = only_faults(job.fault, [&](const Fault& fault) {
      return hits_somebody(fault, job) && !(fault.hits_frames() && kind.one_worker);
    });
    if (job.fault != flags.job.fault)
      left_out->emplace("--fault",
                        fmt::format("--fault {}: strategy {} has not all that it hits", flags.job.fault, strategy));
  }
  check_faults(job, kind);
  if (each_push_updates) check_asynchronous(job, kind);
  if (job.local_reduce && !job.link.empty())
    fail(ErrorKind::usage, "--local-reduce: with --link {} each worker is a host of its own", job.link);
  const net::Way way = net::parse_way(job.transport);
  if (!job.link.empty()) net::parse_link(job.link);
  if (!job.link.empty() && way == net::Way::shm)
    fail(ErrorKind::usage, "--link {}: shapes TCP; --transport shm has no link to shape", job.link);
  if (flags.encrypt == "on" && way == net::Way::shm)
    fail(ErrorKind::usage, "--encrypt on: --transport shm has no link to encrypt");
  job.encrypt = flags.encrypt == "auto" ? !loopback : parse_switch("--encrypt", flags.encrypt, "on, off or auto");
  job.master_copy = parse_switch("--master-copy", flags.master_copy, "on or off");
  if (!job.master_copy && job.precision == "f32")
    fail(ErrorKind::usage, "--master-copy off: --precision f32 has no narrow parameters that a copy is kept of");
  job.trace = parse_switch("--trace", flags.trace, "on or off");
  job.overlap = parse_switch("--overlap", flags.overlap, "on or off");
  one_of("--bucket-order", job.bucket_order, "reverse", "forward");
  job.bucket_bytes = parse_bytes("--bucket", flags.bucket);
  check_count("--bucket", job.bucket_bytes, kMostBytes);
  fit(job, "--overlap", &JobOptions::overlap, kind.buckets, "has no buckets");
  fit(job, "--bucket-order", &JobOptions::bucket_order, kind.buckets, "has no buckets");
  fit(job, "--bucket", &JobOptions::bucket_bytes, kind.buckets, "has no buckets");
  job.reshard_after_forward = parse_switch("--reshard-after-forward", flags.reshard_after_forward, "on or off");
  if (job.prefetch > 2) fail(ErrorKind::usage, "--prefetch: expected 0, 1 or 2, got {}", job.prefetch);
  fit(job, "--prefetch", &JobOptions::prefetch, kind.gathers, "gathers no parameters");
  fit(job, "--reshard-after-forward", &JobOptions::reshard_after_forward, kind.gathers, "gathers no parameters");
  fit(job, "--share-host-parameters", &JobOptions::share_host_parameters, kind.ring && kind.gathers,
      "gathers no parameters from workers");
  if (job.share_host_parameters) check_in_place(job);
  fit(job, "--shard-group", &JobOptions::shard_group, kind.ring && kind.stage > 0, "has nothing cut among workers");
  if (!job.link.empty() && job.shard_group == "host") job.shard_group = "1";  // each process is a host of its own
  job.shard_owners();
  if (!flags.tuning.empty()) job.tuning = ring::Tuning::load(flags.tuning).to_json();
  check_count("--streams", job.streams, net::kMaxTcpStreams);
  fit(job, "--algorithm", &JobOptions::algorithm, kind.ring, "has no all-reduces");
  fit(job, "--tuning", &JobOptions::tuning, kind.ring, "has no all-reduces");
  fit(job, "--streams", &JobOptions::streams, kind.ring, "has no links between workers");
  if (job.algorithm != "auto" && job.algorithm != "direct") ring::parse_algorithm("--algorithm", job.algorithm);
  const bool direct = job.algorithm == "direct";
  if (direct && (job.transport == "tcp" || !job.link.empty()))
    fail(ErrorKind::usage, "--algorithm direct: it needs shared memory, not {}",
         job.link.empty() ? "--transport tcp" : "--link");
  if (direct && frame_faults(job.fault, 0, {}))
    fail(ErrorKind::usage, "--algorithm direct: it needs shared memory, not the frames of --fault {}", job.fault);
  if (!direct && job.algorithm != "auto" && job.transport == "shm")
    fail(ErrorKind::usage, "--algorithm {}: it sends messages; in shared memory it is direct", job.algorithm);
  one_of("--device", job.device, "cpu", "cuda");
  one_of("--server-device", job.server_device, "cpu", "cuda");
  check_device(job, kind);
  parse_betas(flags.betas, job);
  resolve_checkpoints(job);
  if (job.max_restarts > 0) check_count("--max-restarts", job.max_restarts, kMostRestarts);
  check_elastic(job, flags.elastic);
  resolve_recovery(job, kind);
  return job;
}

worker::TrainSetup set_up(const JobOptions& job, const App& app) {
  check_servers_part(job, app);
  return {job, app.worker_registries(), app.optimizers()};
}

void fill_in(JobOptions& job, const App& app, const worker::TrainSetup* setup) {
  optim::fill_in(job, *optim::make_optimizer(app.optimizers(), job));
  if (setup == nullptr) return;
  if (!setup->buffers().tensors.empty()) job.recovery = "checkpoint";
  job.steps = setup->steps();
  job.epochs = (setup->steps() + setup->steps_per_epoch() - 1) / setup->steps_per_epoch();
}

void check_servers_part(const JobOptions& job, const App& app) {
  const auto rule = app.aggregators().make(Spec::parse("--aggregate", job.aggregate));
  if (job.server_device == "cuda" && !rule->sum_times(job.workers))
    fail(ErrorKind::usage, "--server-device cuda: --aggregate {} is the host's alone", job.aggregate);
  if (job.server_device == "cuda") require_cuda();
  // A rule says what it needs of the workers once it has their gradients: one element of each will do.
  const std::vector<float> gradient(1);
  const std::vector<const float*> inputs(job.workers, gradient.data());
  std::vector<float> out(1);
  rule->aggregate(inputs, out);
}

}  // namespace psring::cli
