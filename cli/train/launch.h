#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <psring/cli/commands.h>
#include <psring/common/base/system/folder_lock.h>
#include <psring/common/net/address.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/job.h>
#include <psring/common/proc/launched_task.h>

namespace psring::cli {

class LiveView;

/// Where and how to start a job.
struct LaunchOptions {
  std::filesystem::path out;  ///< run folder; is created, and must hold no run yet
  std::size_t nodes = 1;      ///< number of agents: this process, and those that connect
  std::string listen = net::to_string({net::loopback_address(), 0});  ///< address of the coordinator
  std::optional<std::filesystem::path> key_file;                      ///< none: a key is made for this job alone
  bool show_progress = true;
  bool more = false;         ///< another launch follows at the same endpoint: agents stay for it
  bool returning = false;    ///< the agents stayed for this launch
  std::string label;         ///< printed before progress lines
  bool next_part = false;    ///< continue the run in the folder, which the caller has locked
  LiveView* live = nullptr;  ///< looked after while the job runs; null: there is none
  bool resumable = true;     ///< whether psring resume can continue the run; used in the line about its end
  /// Tells the other tasks of a launcher where the coordinator listens; they are then the other nodes' agents. Null:
  /// agents are started by hand.
  std::function<void(const std::string& endpoint, const net::JobKey& key)> tell_tasks;
  std::optional<SlurmJob> slurm_job;  ///< the job of Slurm in which this process runs; is kept in run.json
  bool same_build = false;            ///< processes of another build of psring may not join
  bool requeue = false;               ///< after a SIGUSR1 Slurm starts the job again
};

/// Adds --same-build, which sets LaunchOptions::same_build.
void add_same_build(const Flags& command, bool& same_build);

struct LaunchResult {
  int status = 0;
  std::string cause;                            ///< one line; empty if the job succeeded
  net::control::Interruption interrupted = {};  ///< by a signal
  int signal = 0;                               ///< the same as in AgentResult
  std::string endpoint = {};                    ///< of the coordinator
  bool agents_stay = false;                     ///< other hosts' agents wait for another launch at the endpoint
};

/// Runs a job: starts its coordinator, then acts as this host's agent until the job has ended. The run folder then
/// contains the files of the coordinator, of the roles, and of `begin_run`. Signals are held from here on. REQUIRES:
/// job.steps is resolved.
LaunchResult launch(const JobOptions& job, const LaunchOptions& options, const Invocation& invocation,
                    SignalWatch& signals);

/// Ends the agents of `others` hosts that stay for another launch at the endpoint. Agents that do not come within some
/// seconds are left alone.
void end_agents(const std::string& endpoint, const net::JobKey& key, std::size_t others, SignalWatch& signals);

/// Throws usage, naming --out, if the folder holds a run, finished or not.
void check_no_run(const std::filesystem::path& folder);

/// Returns an empty run folder: `wanted`, or a new folder in runs/ if `wanted` is empty. Throws usage, naming --out, if
/// the folder already holds a run.
std::filesystem::path make_run_folder(const std::string& wanted, const std::string& name);

/// Locks a run folder until the object ends. Throws usage, naming the folder, if another process has the lock: its run
/// is in progress.
std::unique_ptr<FolderLock> lock_run(const std::filesystem::path& folder);

/// Returns a unique identity for a run.
std::string new_run_id();

/// Makes the folder the folder of a run, or of the run's next part, by writing job.json and run.json. Throws like
/// check_no_run if the folder holds a run, even if another process has just begun it.
void begin_run(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation,
               bool next_part = false);

}  // namespace psring::cli
