#include <memory>

#include <fmt/format.h>

#include <psring/cli/launch_checks.h>
#include <psring/cli/live_view.h>
#include <psring/cli/parts.h>
#include <psring/cli/set_up.h>
#include <psring/cli/training.h>
#include <psring/common/base/error.h>
#include <psring/common/base/folder_lock.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/table.h>
#include <psring/common/proc/options/values.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

struct ResumeFlags {
  std::string run;
  std::string listen;
  std::string key;
  std::string live;
  std::string tensorboard;
};

int resume(const ResumeFlags& flags, const Invocation& invocation) {
  SignalWatch signals;
  std::error_code none;  // a bad path holds no run, which is reported below
  const fs::path folder = fs::weakly_canonical(flags.run, none);
  JobOptions job = job_of_run(folder);
  LaunchRecord record = launch_of_run(folder);
  const std::unique_ptr<FolderLock> lock = lock_run(folder);
  if (job.checkpoint_every == 0)
    fail(ErrorKind::usage, "{}: has no checkpoint to continue from, because --checkpoint-every was not given",
         folder.string());
  if (FolderLock::is_held_by_other(job.checkpoint_folder()))
    fail(ErrorKind::usage, "{}: is under way: another process saves its checkpoints", folder.string());
  job.continue_from(newest_whole_checkpoint(job, Damaged::set_aside).string());
  job.fault = without_ends(job.fault);
  const std::uint64_t step = optim::Checkpoint(job.resume).step();
  if (const auto newer = optim::CheckpointFolder(job.checkpoint_folder(), job.run_id).newer_of_another_run(step))
    fail(ErrorKind::usage,
         "{}: has reached step {}, but another run has saved step {} into {} since; continue in a new run: "
         "psring train --resume {} --checkpoint-dir DIR",
         folder.string(), step, newer->step, job.checkpoint_folder(), job.resume);
  if (job.steps && step >= *job.steps)
    fail(ErrorKind::usage, "{}: is already complete, at step {}", folder.string(), step);
  if (!flags.listen.empty()) record.listen = flags.listen;
  if (!flags.live.empty()) job.live = flags.live;
  if (!flags.tensorboard.empty()) options::set(job, options::at("tensorboard"), flags.tensorboard);
  if (!flags.key.empty()) record.key_file = fs::absolute(flags.key).string();
  worker::TrainSetup setup = set_up(job, invocation.app);
  // Refuse a wrong key, a host that cannot run the job, or an address that is in use, before the folder changes.
  if (!record.key_file.empty()) net::JobKey::load(record.key_file);
  check_host(job, record.nodes, record.listen);
  check_memory(setup, record.nodes);
  if (!job.live.empty()) check_live_address(job.live);
  const std::size_t part = begin_next_part(folder);
  fmt::print("{}: part {} continues at step {} of {}, from {}\n", folder.string(), part, step, setup.steps(),
             job.resume);
  LaunchOptions options{
      .out = folder, .nodes = record.nodes, .listen = record.listen, .label = job.strategy, .next_part = true};
  if (!record.key_file.empty()) options.key_file = record.key_file;
  return run_training(setup, job, options, invocation, signals);
}

}  // namespace

Command add_resume(const Flags& program) {
  const Flags command = program.add_command("resume", "continue a run that ended before its last step");
  auto flags = std::make_shared<ResumeFlags>();  // shared: the parser fills it in, the command reads it
  command.add("RUN", flags->run, "run folder; the options are read from its run.json").require();
  command.add("--listen", flags->listen, "ADDR:PORT of the coordinator (as before)");
  command.add("--key", flags->key, "key file of the job (as before)");
  const auto take_live = [flags](const std::string& text) {
    flags->live = text.empty() ? options::find("live")->alone : text;
  };
  command.add_text("--live", take_live, "show the run in a browser while it trains (as before)")
      .show_value("[ADDR:PORT]")
      .make_value_optional();
  command.add("--tensorboard", flags->tensorboard,
              "on or off: write the metrics in TensorBoard's format, too (as before)");
  return [flags](const Invocation& invocation) { return resume(*flags, invocation); };
}

}  // namespace psring::cli
