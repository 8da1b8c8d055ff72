#pragma once

#include <optional>

#include <signal.h>

#include <psring/common/base/fd.h>

namespace psring {

/// Ctrl-C (SIGINT), SIGTERM and a closed terminal (SIGHUP, unless it is ignored, as under nohup) as a file descriptor
/// to poll, instead of the end of the process. Make it in main, before the first thread: threads inherit the mask. Ends
/// by giving the signals their effect back.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }
  /// The signal that came, once; never waits.
  std::optional<int> take();
  /// Gives the signals their effect back now: once the job has ended, they end this process, whatever it waits for.
  void end();

 private:
  sigset_t before_;
  Fd fd_;
};

/// The exit status of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
constexpr int interrupted_status(int signal) { return 128 + signal; }

/// Gives a signal that was taken its own effect after all: the end of this process.
void die_of(int signal);

}  // namespace psring
