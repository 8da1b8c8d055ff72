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
#include <psring/common/base/fd.h>

namespace psring {

/// How a process of a cluster ended.
struct ProcessExit {
  std::string name;
  pid_t pid = 0;
  int status = 0;         ///< exit status; without meaning where a signal ended it
  int signal = 0;         ///< 0: none
  std::string last_line;  ///< the last line on its standard error that was not empty
};

/// What its last line says was wrong, without the name of the program in front: it is passed on, and whoever
/// shows it in the end adds that again. "" where there was no line.
std::string message_of(const ProcessExit& exit);

/// Processes of this host, started and ended together. Each is a process group of its own, with an empty
/// standard input, and its output in a log file. None outlives the cluster, nor the thread that started it
/// (the kernel sees to that, even where this process is killed): start them from the main thread.
/// Belongs to one thread.
class LocalCluster {
 public:
  /// Logs are `log_folder`/<name>.log, which is made where it is missing. `keep_logs`: those that are there go on.
  LocalCluster(std::filesystem::path log_folder, const Clock& clock, bool keep_logs = false);
  /// Kills and reaps what is left.
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  /// Starts argv[0] (found as execvp finds it; this process's own program as the file that it was started from, though
  /// another may have taken its path since). `inherited` stay open in it under their own numbers, all other
  /// descriptors but the standard ones should be CLOEXEC. Throws data, naming the program, where it cannot be
  /// executed.
  /// Where one of that name was started before, the log goes on.
  pid_t start(const std::string& name, std::vector<std::string> argv, std::span<const int> inherited = {});

  /// SIGKILL to one and all in its group, whose end is told as every other. False where none of that name runs.
  bool kill(const std::string& name);

  /// SIGKILL to those that have stood still (SIGSTOP) for so long, as far as calls have seen; a time without calls, in
  /// which this process may have stood still as well, does not count.
  void kill_stopped(Nanoseconds patience);

  /// The next process that has ended, with its log complete. Nothing where the deadline has passed, one of
  /// `wake_fds` is readable, or no process is left and there is nothing to wake for.
  std::optional<ProcessExit> next_exit(Moment deadline, std::span<const int> wake_fds = {});

  /// SIGTERM to all, and SIGKILL to those that have not ended `grace` later. How each of them ended.
  std::vector<ProcessExit> terminate_all(Nanoseconds grace);

  /// Readable where next_exit may have something to do.
  std::vector<int> fds() const;
  bool runs(const std::string& name) const;
  std::size_t running() const { return processes_.size(); }

 private:
  struct Process {
    std::string name;
    pid_t pid = 0;
    Fd pid_fd;
    Fd errors;  ///< its standard error, until it ends
    Fd log;
    std::string line;  ///< the one that is being written
    std::string last_line;
    std::optional<Moment> stopped;  ///< it stands still since then
  };

  void collect(Process& process);
  ProcessExit reap(std::list<Process>::iterator process);
  void signal_all(int signal);

  std::filesystem::path log_folder_;
  std::string own_path_;  ///< of the program that this process runs
  const Clock& clock_;
  const bool keep_logs_;
  Moment looked_ = Moment::min();  ///< when kill_stopped was called last
  std::list<Process> processes_;
  std::set<std::string> started_;
};

}  // namespace psring
