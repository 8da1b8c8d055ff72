#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include <psring/cli/commands.h>
#include <psring/cli/train/launch.h>
#include <psring/common/base/clock.h>
#include <psring/common/proc/coordinator/meeting.h>
#include <psring/common/proc/launched_task.h>

namespace psring::cli {

/// The options that say which launcher (srun, mpirun) has started this process, and how its tasks find each other.
struct TaskFlags {
  std::string launcher = "auto";
  std::string meeting;  ///< "": kMeetingFolder
};
inline constexpr const char* kMeetingFolder = ".psring";
void add_launcher_flag(const Flags& command, std::string& launcher);
void add_task_flags(const Flags& command, TaskFlags& flags);

/// The tasks of a launcher, as one of them sees them. Task r is the agent of worker r: the worker runs where the
/// launcher has put the task, with the processors, memory and GPUs that the task has. Task 0 starts the coordinator as
/// well, and tells the other tasks its address and the job's key.
class Tasks {
 public:
  /// Looks at the environment. Throws usage, naming --launcher or the variable.
  /// `has_key`: the tasks were given the job's key.
  Tasks(const TaskFlags& flags, bool has_key);

  /// Is the job spread over several tasks? If not, it starts all of its processes itself.
  bool are_several() const { return task_.has_value(); }
  std::size_t count() const { return task_ ? task_->tasks : 1; }
  std::size_t here() const { return task_ ? task_->tasks_here : 1; }
  /// The launcher's program, such as srun. REQUIRES: are_several.
  const std::string& launcher() const { return task_->launcher; }
  /// The job of Slurm in which this process runs, if there is one.
  const std::optional<SlurmJob>& slurm() const { return slurm_; }
  /// Prints a line if the allocation has nodes that this job leaves idle. `nodes`: hosts that it uses.
  void warn_of_idle_nodes(std::size_t nodes) const;

  /// The other tasks' part: returns the exit status of this task.
  struct Follow {
    std::string key_file;        ///< "": task 0 makes a key
    std::string run_folder;      ///< "": not known
    Nanoseconds join_timeout{};  ///< for task 0 to start the coordinator, and for the coordinator's answer
  };
  bool follows() const { return task_ && task_->rank > 0; }
  int follow(const Follow& options, SignalWatch& signals, const Invocation& invocation) const;

  /// Task 0's part: calls `body`, and returns its result. If `body` ends before the other tasks could join, they end
  /// with the same status.
  int lead(const std::function<int()>& body);
  /// The address at which the coordinator listens, as ADDR:PORT. `wanted`: the option's text, or "". Throws usage,
  /// naming --listen.
  std::string listen_address(const std::string& wanted) const;
  /// Makes `options` the launch of a job whose other roles are started by the other tasks.
  void prepare(LaunchOptions& options);

 private:
  MeetingPoint await_point(const Follow& options, SignalWatch& signals) const;
  void end_others(int status);
  bool await_leaders_end(SignalWatch& signals, Nanoseconds patience) const;
  std::string meeting_name() const;

  std::optional<LaunchedTask> task_;  ///< nothing if there is one task only
  std::optional<SlurmJob> slurm_;
  bool started_by_launcher_ = false;
  std::string meeting_;                ///< "": not given
  std::optional<std::string> master_;  ///< HOST:PORT at which tasks meet in place of a folder
  bool told_ = false;                  ///< task 0 has told the others where to join
  std::optional<MeetingFolder> folder_;
};

/// Throws usage if this process is one of several tasks, because `command` runs on one host. `launcher`: the word of
/// --launcher.
void refuse_tasks(const char* command, const std::string& launcher);

}  // namespace psring::cli
