#pragma once

#include <optional>

#include <signal.h>

#include <psring/common/base/fd.h>

namespace psring {

/// Ctrl-C (SIGINT), SIGTERM, SIGUSR1 (with which Slurm announces a time limit) and a closed terminal (SIGHUP, unless it
/// is ignored, as under nohup) as a file descriptor to poll, instead of the end of the process. Make it in main, before
/// the first thread, because threads inherit the signal mask. The destructor restores the signals' effect.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that has come; nothing if there is none. Never waits.
  std::optional<int> take();
  /// Restores the signals' effect now: once the job has ended, a signal ends this process at once.
  void end();

 private:
  sigset_t before_;
  Fd fd_;
};

/// The exit status of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 138 for SIGUSR1.
constexpr int interrupted_status(int signal) { return 128 + signal; }

/// Ends this process by the signal that was taken.
void die_of(int signal);

}  // namespace psring
