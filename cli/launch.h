#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/commands.h>
#include <psring/common/base/folder_lock.h>
#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/job.h>

namespace psring::cli {

/// Where and how a job is started.
struct LaunchOptions {
  std::filesystem::path out;                      ///< run folder; made, must hold no run yet
  std::size_t nodes = 1;                          ///< hosts: this one, and those whose agents connect
  std::string listen = "127.0.0.1:0";             ///< of the coordinator
  std::optional<std::filesystem::path> key_file;  ///< none: a key is made for this job alone
  bool show_progress = true;
  std::string label;       ///< in front of progress lines
  bool next_part = false;  ///< of a run that the folder holds already, and which the caller has locked: it goes on
  bool resumable = true;   ///< by psring resume: what is said of its end says so
};

struct LaunchResult {
  int status = 0;
  std::string cause;                            ///< one line; empty where all went well
  net::control::Interruption interrupted = {};  ///< by a signal
  int signal = 0;                               ///< as AgentResult
};

/// Runs a job: starts its coordinator, then acts as this host's agent until the job has ended. The run folder
/// has what the coordinator and the roles wrote, and what `begin_run` writes. REQUIRES: job.steps is resolved.
LaunchResult launch(const JobOptions& job, const LaunchOptions& options, const Invocation& invocation,
                    SignalWatch& signals);

/// Throws usage, naming --out, where there is a run in the folder, however it ended.
void check_no_run(const std::filesystem::path& folder);

/// An empty run folder: `wanted`, or where that is empty a new one below runs/. Throws usage, naming --out,
/// where there is a run in it already.
std::filesystem::path make_run_folder(const std::string& wanted, const std::string& name);

/// Locks a run folder for the process that runs the job, until the object ends. Throws usage, naming the folder, if
/// another process has the lock: its run is under way.
std::unique_ptr<FolderLock> lock_run(const std::filesystem::path& folder);

/// An identity for a run, which no other has.
std::string new_run_id();

/// Makes it a folder that holds a run, or that run's next part, and writes down of what job: job.json and run.json.
/// Throws as check_no_run if the folder holds a run, also if another process has just begun it.
void begin_run(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation,
               bool next_part = false);

}  // namespace psring::cli
