#include <memory>

#include <psring/cli/options/parts.h>
#include <psring/cli/train/ending.h>
#include <psring/cli/train/launch_checks.h>
#include <psring/cli/train/live_view.h>
#include <psring/cli/train/set_up.h>
#include <psring/cli/train/tasks.h>
#include <psring/cli/train/training.h>
#include <psring/common/base/system/folder_lock.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";

struct ResumeFlags {
  std::string run;
  std::string listen;
  std::string key;
  std::string live;
  std::string tensorboard;
  bool other_data = false;
  TaskFlags tasks;
};

constexpr auto kJoinTimeout = std::chrono::seconds(60);  ///< of tasks that cannot read the run

/// Makes the job continue from its newest checkpoint. Returns the step of the checkpoint. Throws usage if another run
/// has saved a later checkpoint in its place.
std::uint64_t continue_from_newest(JobOptions& job, const fs::path& folder) {
  if (FolderLock::is_held_by_other(job.checkpoint_folder()))
    fail(ErrorKind::usage, "{}: is under way: another process saves its checkpoints", folder.string());
  job.continue_from(newest_whole_checkpoint(job, Damaged::set_aside).string());
  // The run's own checkpoints were made on its data.
  if (optim::run_of(job.resume) == job.run_id) job.other_data = false;
  const std::uint64_t step = optim::Checkpoint(job.resume).step();
  if (const auto newer = optim::CheckpointFolder(job.checkpoint_folder(), job.run_id).newer_of_another_run(step))
    fail(ErrorKind::usage,
         "{}: has reached step {}, but another run has saved step {} into {} since; continue in a new run: "
         "psring train --resume {} --checkpoint-dir DIR",
         folder.string(), step, newer->step, job.checkpoint_folder(), job.resume);
  return step;
}

/// The next part of a run: its options, and where it begins.
struct NextPart {
  fs::path folder;
  JobOptions job;
  LaunchRecord record;
  std::uint64_t step = 0;
  bool requeue = false;
};

/// Runs the next part. REQUIRES: the caller has locked the folder.
int run_part(NextPart next, Tasks& tasks, const Invocation& invocation, SignalWatch& signals) {
  JobOptions& job = next.job;
  if (tasks.are_several()) {
    if (job.workers != tasks.count())
      fail(ErrorKind::usage, "{}: has {} workers, but {} started {} tasks, and each task is a worker",
           next.folder.string(), job.workers, tasks.launcher(), tasks.count());
    next.record.nodes = tasks.count();
  }
  job.fault = without_ends(job.fault);
  worker::TrainSetup setup = set_up(job, invocation.app);
  // Refuse a wrong key, a host that cannot run the job, or an address that is in use, before the folder changes.
  if (!next.record.key_file.empty()) net::JobKey::load(next.record.key_file);
  check_host(job, next.record.nodes, tasks.here(), next.record.listen);
  check_memory(setup, next.record.nodes, tasks.here());
  if (!job.live.empty()) check_live_address(job.live);
  LaunchOptions options{.out = next.folder,
                        .nodes = next.record.nodes,
                        .listen = next.record.listen,
                        .label = job.strategy,
                        .next_part = true,
                        .same_build = next.record.same_build,
                        .requeue = next.requeue};
  if (!next.record.key_file.empty()) options.key_file = next.record.key_file;
  tasks.prepare(options);
  tasks.warn_of_idle_nodes(next.record.nodes);
  const std::size_t part = begin_next_part(next.folder);
  out::print("{}: part {} continues at step {} of {}, from {}\n", next.folder.string(), part, next.step, setup.steps(),
             next.step > 0 ? job.resume : "its beginning");
  return run_training(setup, job, options, invocation, signals);
}

int resume(const ResumeFlags& flags, Tasks& tasks, const Invocation& invocation, SignalWatch& signals) {
  std::error_code none;  // a bad path holds no run, which is reported below
  NextPart next{.folder = fs::weakly_canonical(flags.run, none), .job = {}, .record = {}};
  JobOptions& job = next.job = job_of_run(next.folder);
  next.record = launch_of_run(next.folder);
  const std::unique_ptr<FolderLock> lock = lock_run(next.folder);
  if (job.checkpoint_every == 0)
    fail(ErrorKind::usage, "{}: has no checkpoint to continue from, because --checkpoint-every was not given",
         next.folder.string());
  next.step = continue_from_newest(job, next.folder);
  const bool has_model = fs::exists(next.folder / kModelFile);  // which is saved after the last step
  if (job.steps && next.step >= *job.steps && has_model)
    fail(ErrorKind::usage, "{}: is already complete, at step {}", next.folder.string(), next.step);
  if (!flags.listen.empty() || tasks.are_several()) next.record.listen = tasks.listen_address(flags.listen);
  if (!flags.live.empty()) job.live = flags.live;
  if (!flags.tensorboard.empty()) options::set(job, options::at("tensorboard"), flags.tensorboard);
  if (flags.other_data) job.other_data = true;
  if (!flags.key.empty()) next.record.key_file = fs::absolute(flags.key).string();
  return run_part(std::move(next), tasks, invocation, signals);
}

}  // namespace

int continue_requeued(const fs::path& wanted, const std::string& listen, Tasks& tasks, const Invocation& invocation,
                      SignalWatch& signals) {
  NextPart next{.folder = fs::weakly_canonical(wanted), .job = job_of_run(wanted), .record = {}, .requeue = true};
  next.job.out = next.folder.string();
  next.record = launch_of_run(next.folder);
  if (next.record.slurm_job != tasks.slurm()->id)
    fail(ErrorKind::usage, "--out {}: holds a run of {}, not of this Slurm job {}; choose another --out",
         next.folder.string(), next.record.slurm_job.empty() ? "no job of Slurm" : "Slurm job " + next.record.slurm_job,
         tasks.slurm()->id);
  const std::unique_ptr<FolderLock> lock = lock_run(next.folder);
  if (fs::exists(next.folder / kModelFile)) {
    out::print("{}: is already complete\n", next.folder.string());
    return 0;
  }
  if (newest_checkpoint(next.job) || !next.job.resume.empty()) next.step = continue_from_newest(next.job, next.folder);
  next.record.listen = tasks.listen_address(listen);
  return run_part(std::move(next), tasks, invocation, signals);
}

Command add_resume(const Flags& program) {
  const Flags command = program.add_command("resume", "continue a run that ended before its last step");
  auto flags = std::make_shared<ResumeFlags>();  // shared: the parser fills it in, the command reads it
  command.add("RUN", flags->run, "run folder; the options are read from its run.json").show_value("DIR").require();
  command.add("--listen", flags->listen, "ADDR:PORT of the coordinator (as before)");
  command.add("--key", flags->key, "key file of the job (as before)").show_value("FILE");
  const auto take_live = [flags](const std::string& text) {
    flags->live = text.empty() ? options::find("live")->alone : text;
  };
  command.add_text("--live", take_live, "show the run in a browser while it trains (as before)")
      .show_value("[ADDR:PORT]")
      .make_value_optional();
  command.add("--tensorboard", flags->tensorboard, "on: write the metrics in TensorBoard's format, too (as before)")
      .show_value("on|off");
  command.add_switch("--other-data", flags->other_data, options::at("other-data").help);
  add_task_flags(command, flags->tasks);
  return [flags](const Invocation& invocation) {
    SignalWatch signals(SignalWatch::Effect::ends_process);
    Tasks tasks(flags->tasks, !flags->key.empty());
    if (tasks.are_several()) signals.hold();  // task 0 tells the others that it ends
    if (tasks.follows()) return tasks.follow({flags->key, flags->run, kJoinTimeout}, signals, invocation);
    return tasks.lead([&] { return resume(*flags, tasks, invocation, signals); });
  };
}

}  // namespace psring::cli
