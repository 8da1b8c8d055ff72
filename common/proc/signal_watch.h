#pragma once

#include <optional>

#include <signal.h>

#include <psring/common/base/fd.h>

namespace psring {

/// Ctrl-C and SIGTERM as a file descriptor to poll, instead of the end of the process. Make it in main, before
/// the first thread: threads inherit the mask. Ends by giving the signals their effect back.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const { return fd_.get(); }
  /// The signal that came, once; never waits.
  std::optional<int> take();

 private:
  sigset_t before_;
  Fd fd_;
};

/// The exit status of a program that Ctrl-C ended.
inline constexpr int kInterruptedStatus = 130;

}  // namespace psring
