#pragma once

#include <cstddef>
#include <filesystem>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>

namespace psring {

/// How a process of a cluster ended.
struct ProcessExit {
  std::string name;
  pid_t pid = 0;
  int status = 0;         ///< exit status; without meaning if a signal ended the process
  int signal = 0;         ///< the signal that ended the process; 0: none
  std::string last_line;  ///< the last line of the standard error that was not empty
};

/// The error in the last line, without the name of the program in front: the process that shows the error in the end
/// adds its own name. "" if there was no line.
std::string message_of(const ProcessExit& exit);

/// Processes of this host, started and ended together. Each process is a process group of its own, with an empty
/// standard input and its output in a log file. No process outlives the cluster, nor the thread that started it (the
/// kernel kills it, even if this process itself is killed): start processes from the main thread. Belongs to one
/// thread.
class LocalCluster {
 public:
  /// Logs are `log_folder`/<name>.log; the folder is created if missing, but not those above it: a temporary folder
  /// that a signal has removed must not come back. `keep_logs`: existing logs are appended to.
  LocalCluster(std::filesystem::path log_folder, const Clock& clock, bool keep_logs = false);
  /// Kills and reaps all processes.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  /// Starts argv[0], which execvp finds; this process's own program is started from the file that runs here, even if
  /// another file has its path by now. The descriptors `inherited` stay open in the process under their own numbers;
  /// all others but the standard descriptors should be CLOEXEC. If a process of this name was started before, its log
  /// is appended to. Throws data, naming the program, if it cannot be executed.
  pid_t start(const std::string& name, std::vector<std::string> argv, std::span<const int> inherited = {});

  /// Sends SIGKILL to a process and its group; next_exit returns its end. Returns false if no process of that name
  /// runs.
  bool kill(const std::string& name);

  /// Sends SIGKILL to processes that have been stopped (SIGSTOP) for `patience`, as far as calls have seen. A time
  /// without calls does not count, because this process may have been stopped as well.
  void kill_stopped(Nanoseconds patience);

  /// Waits for the next process to end, and returns it once its log is complete. Returns nothing if the deadline has
  /// passed, one of `wake_fds` is readable, or there is no process and no `wake_fds`.
  std::optional<ProcessExit> next_exit(Moment deadline, std::span<const int> wake_fds = {});

  /// Sends SIGTERM to all processes, and SIGKILL to the processes that have not ended after `grace`. Returns how each
  /// ended.
  std::vector<ProcessExit> terminate_all(Nanoseconds grace);

  /// The descriptors that are readable when next_exit may return.
  std::vector<int> fds() const;
  bool runs(const std::string& name) const;
  std::size_t running() const { return processes_.size(); }

 private:
  struct Process {
    std::string name;
    pid_t pid = 0;
    Fd pid_fd;
    Fd errors;  ///< the read end of the standard error, until its end
    Fd log;
    std::string line;               ///< the line that is being written
    std::string last_line;          ///< the last complete line that was not empty
    std::optional<Moment> stopped;  ///< when the process was stopped; none: it runs
  };

  void collect(Process& process);
  ProcessExit reap(std::list<Process>::iterator process);
  void signal_all(int signal);

  std::filesystem::path log_folder_;
  std::string own_path_;  ///< the path of the program that this process runs
  const Clock& clock_;
  const bool keep_logs_;
  Moment looked_ = Moment::min();  ///< the last call of kill_stopped
  std::list<Process> processes_;
  std::set<std::string> started_;  ///< the names of all processes so far
};

}  // namespace psring
