#include <filesystem>
#include <optional>
#include <string_view>

#include <psring/cli/options/parts.h>
#include <psring/cli/options/refused_pairs.h>
#include <psring/cli/options/resolve.h>
#include <psring/common/base/system/folder_lock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/ring/plan/tuning.h>

namespace psring::cli {
namespace {

using options::check_count;
using options::Given;
using options::text_of;

/// --elastic MIN:MAX, a range of workers.
struct ElasticRange {
  std::size_t least = 0;
  std::size_t most = 0;
};

std::optional<ElasticRange> parse_elastic(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::string_view all = text;
  const std::size_t colon = std::min(all.find(':'), all.size() - 1);  // without one, the second part is empty
  const ElasticRange range{read_number<std::size_t>(all.substr(0, colon)).value_or(0),
                           read_number<std::size_t>(all.substr(colon + 1)).value_or(0)};
  if (range.least == 0 || range.least > range.most)
    fail(ErrorKind::usage, "--elastic: expected MIN:MAX workers, such as 2:4, got '{}'", text);
  return range;
}

constexpr std::string_view kMixed = "mixed:";

/// The K of --servers mixed:K; nothing if servers are not mixed.
std::optional<std::size_t> parse_mixed(const std::string& text) {
  if (!text.starts_with(kMixed)) return std::nullopt;
  return parse_count("--servers", text.substr(kMixed.size()));
}

/// --servers N sets the number alone.
void set_given_servers(JobOptions& job, const Given& given) {
  const auto found = given.find("servers");
  if (found == given.end() || parse_mixed(found->second)) return;
  if (const std::string mistake = options::mistake_in({.form = options::Form::whole}, found->second); !mistake.empty())
    fail(ErrorKind::usage, "--servers: expected a whole number or mixed:K, got '{}'", found->second);
  job.servers = options::whole_number("--servers", found->second);
}

/// Adds K standalone servers to a colocated server in each worker. Returns false if servers are not mixed.
bool set_mixed_servers(JobOptions& job, const Given& given, const worker::StrategyKind& kind, const Fitting& fit) {
  const std::string text = text_of(given, "servers");
  const std::optional<std::size_t> extra = parse_mixed(text);
  if (!extra) return false;
  const auto refuse = [&](const char* reason) {
    fit.refuse("--servers", fmt::format("--servers {}: strategy {} {}", text, job.strategy, reason));
    return false;
  };
  if (!kind.has_servers()) return refuse("has none");
  if (kind.one_server) return refuse("has one");
  if (kind.colocated) return refuse("has no standalone servers; use ps");
  if (given.contains("placement"))
    fail(ErrorKind::usage, "--servers {} with --placement {}: mixed servers are placed by --servers alone", text,
         job.placement);
  if (*extra == 0) fail(ErrorKind::usage, "--servers {}: without standalone servers, use --placement colocated", text);
  if (*extra >= job.workers)
    fail(ErrorKind::usage,
         "--servers {}: as many standalone servers as the {} workers, or more, leave nothing to "
         "colocated servers; use --servers {}",
         text, job.workers, *extra);
  job.placement = "mixed";
  job.servers = job.workers + *extra;
  return true;
}

void set_placement(JobOptions& job, const Given& given, const worker::StrategyKind& kind, const Fitting& fit) {
  const std::string own = kind.colocated ? "colocated" : "standalone";
  if (!given.contains("placement")) job.placement = own;
  if (job.placement == own || (kind.has_servers() && !kind.colocated)) return;
  fit.refuse("--placement",
             fmt::format("--placement {}: strategy {} {}", job.placement, job.strategy,
                         kind.has_servers() ? "has its servers in workers' processes" : "has no servers"));
  job.placement = own;
}

void set_servers(JobOptions& job, const Given& given, const worker::StrategyKind& kind, const Fitting& fit) {
  const bool is_given = given.contains("servers");
  const auto refuse = [&](const char* reason) {
    fit.refuse("--servers", fmt::format("--servers {}: strategy {} {}", job.servers, job.strategy, reason));
  };
  if (!kind.has_servers()) {
    if (is_given && job.servers != 0) refuse("has none");
    job.servers = 0;
  } else if (kind.one_server) {
    if (is_given && job.servers != 1) refuse("has one");
    job.servers = 1;
  } else if (job.placement == "colocated" && (!is_given || parse_mixed(text_of(given, "servers")))) {
    job.servers = job.workers;
  } else if (!is_given) {
    job.servers = job.tensor * job.pipeline;  // one for each part of the model
  }
}

/// Sets how many workers and servers there are, and where the servers run.
void set_processes(JobOptions& job, const Given& given, const worker::StrategyKind& kind, const Fitting& fit) {
  const auto elastic = parse_elastic(text_of(given, "elastic"));
  job.min_workers = elastic ? elastic->least : 0;
  const bool is_given = given.contains("workers");
  if (!is_given && elastic) job.workers = elastic->most;
  const std::size_t wanted = job.workers;
  if (kind.one_worker) job.workers = 1;
  set_given_servers(job, given);
  if (!set_mixed_servers(job, given, kind, fit)) {
    set_placement(job, given, kind, fit);
    set_servers(job, given, kind, fit);
  }
  if (kind.one_worker && is_given && wanted != 1)
    fit.refuse("--workers",
               fmt::format("--workers {}: strategy {} is one process; --virtual-workers repeats the arithmetic of "
                           "several",
                           wanted, job.strategy));
  check_count("--workers", job.workers, options::kMostProcesses);
  if (kind.has_servers()) check_count("--servers", job.servers, options::kMostProcesses);
}

void set_global_batch(JobOptions& job, const Given& given) {
  const std::size_t parts = job.data_workers() * job.virtual_workers;
  if (given.contains("batch-size")) {
    if (given.contains("global-batch"))
      fail(ErrorKind::usage, "--batch-size is per worker and --global-batch for all: give one of them");
    const std::size_t each = options::whole_number("--batch-size", text_of(given, "batch-size"));
    check_count("--batch-size", each, options::kMostSamples / parts);
    job.global_batch = each * parts;
  }
  if (job.global_batch % parts != 0)
    fail(ErrorKind::usage, "--global-batch {}: cannot be divided evenly among {} workers", job.global_batch, parts);
}

void set_betas(JobOptions& job, const std::string& text) {
  if (text.empty()) return;
  const auto number = [&](std::string_view part) {
    const auto value = read_number<double>(part);
    if (!value) fail(ErrorKind::usage, "--betas: expected two numbers such as 0.9,0.999, got '{}'", text);
    return *value;
  };
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) number("");
  job.beta1 = number(std::string_view(text).substr(0, comma));
  job.beta2 = number(std::string_view(text).substr(comma + 1));
}

void set_encryption(JobOptions& job, const Given& given, const worker::StrategyKind& kind, const Fitting& fit,
                    bool loopback) {
  const auto found = given.find("encrypt");
  const std::string text = found == given.end() ? "auto" : found->second;
  if (text != "on" && text != "off" && text != "auto")
    fail(ErrorKind::usage, "--encrypt: expected on, off or auto, got '{}'", text);
  const bool without_links = kind.one_worker && text == "on";
  if (without_links) fit.refuse("--encrypt", fmt::format("--encrypt on: strategy {} is one process", job.strategy));
  job.encrypt = text == "auto" || without_links ? !loopback : text == "on";
}

/// Leaves out the faults that have nothing to hit in this strategy's run.
void leave_out_faults(JobOptions& job, const worker::StrategyKind& kind, const Fitting& fit) {
  const std::string all = job.fault;
  job.fault = only_faults(
      all, [&](const Fault& fault) { return hits_somebody(fault, job) && !(fault.hits_frames() && kind.one_worker); });
  if (job.fault != all)
    fit.refuse("--fault",
               fmt::format("--fault {}: strategy {} does not have everything that the fault hits", all, job.strategy));
}

/// Nothing is lost that could be fed back.
void check_error_feedback(JobOptions& job, const Fitting& fit) {
  if (job.error_feedback || optim::compresses(job.compress)) return;
  fit.refuse("--error-feedback", "--error-feedback off: means nothing without --compress");
  job.error_feedback = true;
}

/// Chooses the checkpoint of --resume. Refuses a folder that has checkpoints of another run after that step, as these
/// would be taken for this run's newest.
void set_checkpoints(JobOptions& job) {
  namespace fs = std::filesystem;
  std::uint64_t first_step = 0;
  if (!job.resume.empty()) {
    try {
      job.resume = checkpoint_at(job.resume).string();
      first_step = optim::Checkpoint(job.resume).step();
    } catch (const Error& error) {
      throw error.with_context("--resume");
    }
  }
  if (job.checkpoint_dir.empty()) return;
  job.checkpoint_dir = fs::absolute(job.checkpoint_dir).string();
  if (FolderLock::is_held_by_other(job.checkpoint_dir))
    fail(ErrorKind::usage, "--checkpoint-dir {}: another run saves there; choose another folder", job.checkpoint_dir);
  const auto there = optim::CheckpointFolder(job.checkpoint_dir).complete();
  if (!there.empty() && there.back().step > first_step)
    fail(ErrorKind::usage, "--checkpoint-dir {}: has a checkpoint of step {}; --resume it, or choose another folder",
         job.checkpoint_dir, there.back().step);
}

/// Decides whether servers or workers hold everything that the job needs to continue with the same bits after a loss;
/// otherwise the job continues from a checkpoint. Nobody holds everything in these cases: error feedback keeps values
/// at one worker only (layers with buffers too: see fill_in), PowerSGD keeps the factors that a step starts with,
/// gradients of a late worker are dropped with backup workers, LAMB changes its state before a step is complete, a
/// host's workers push one sum together, and rows of tables that have left are gone.
void set_recovery(JobOptions& job, const worker::StrategyKind& kind) {
  if (job.mesh().divides_model()) job.recovery = "checkpoint";  // each worker has a part of the model alone
  if (job.recovery == "checkpoint") return;
  const bool feedback = job.error_feedback && optim::compresses(job.compress);
  const bool start = optim::power_sgd_rank(job.compress).has_value();
  std::string lost;  // the option by which nobody holds everything
  if (feedback || start) lost = "--compress " + job.compress;
  if (job.backup_workers > 0) lost = fmt::format("--backup-workers {}", job.backup_workers);
  if (job.optimizer == "lamb") lost = "--optimizer lamb";
  if (job.local_reduce) lost = "--local-reduce";
  std::vector<std::string> tables = options::named_tables(job.table);
  tables.emplace_back();  // those without options of their own
  for (const std::string& name : tables) {
    const JobOptions own = options::options_of_table(job, name);
    const optim::RowRules rules = optim::row_rules(job, name);
    const auto flag = [&](const char* key, const std::string& value) {
      return name.empty() ? fmt::format("--table-{} {}", key, value)
                          : fmt::format("--table {}:{}={}", name, key, value);
    };
    if (rules.admits()) lost = flag("admit", own.table_admit);
    if (rules.most > 0) lost = flag("rows", own.table_rows);
    if (rules.ttl > 0) lost = flag("ttl", own.table_ttl);
  }
  const bool kept = lost.empty();
  if (kept && kind.row_servers)
    job.recovery = kind.whole && job.placement == "standalone" ? "both" : "checkpoint";
  else if (kept && kind.servers && job.placement == "standalone" && job.optimizer_on == "server")
    job.recovery = "servers";
  else
    job.recovery = kept && kind.whole ? "workers" : "checkpoint";
  if (job.replicas > 0 && job.recovery != "servers" && job.recovery != "both")
    fail(ErrorKind::usage,
         "--replicas {}: a job {} continues from checkpoints (docs/guide/faults.md), and followers would never "
         "replace their servers",
         job.replicas, kept ? "of --strategy " + job.strategy : "with " + lost);
}

}  // namespace

JobOptions resolve(const Given& given, const std::string& strategy, const worker::StrategyKind& kind, LeftOut* left_out,
                   bool loopback) {
  JobOptions job = options::job_of(given);
  job.strategy = strategy;
  const Fitting fit(strategy, kind, given, left_out);
  set_processes(job, given, kind, fit);
  if (!given.contains("optimizer-on")) job.optimizer_on = kind.optimizer_on;
  if (!given.contains("consistency")) job.consistency = kind.consistency;
  if (!given.contains("table-consistency")) job.table_consistency = kind.table_consistency;
  job.tuning = text_of(given, "tuning");
  fit.apply_to(job);
  check_error_feedback(job, fit);
  if (!job.tuning.empty()) job.tuning = ring::Tuning::load(job.tuning).to_json();
  if (!job.link.empty() && job.shard_group == "host") job.shard_group = "1";  // each process is a host of its own
  check_mesh(job);
  set_global_batch(job, given);
  set_betas(job, text_of(given, "betas"));
  set_encryption(job, given, kind, fit, loopback);
  if (fit.leaves_out()) leave_out_faults(job, kind, fit);
  refuse_pairs(job, given, kind);
  set_checkpoints(job);
  set_recovery(job, kind);
  return job;
}

}  // namespace psring::cli
