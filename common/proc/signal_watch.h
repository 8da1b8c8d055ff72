#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <thread>

#include <signal.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/proc/stop.h>

namespace psring {

/// Takes the signals that ask a program to end, in a thread of its own: Ctrl-C (SIGINT), SIGTERM, SIGUSR1 (with which
/// Slurm announces a time limit), a closed terminal (SIGHUP), Ctrl-\ (SIGQUIT), and the end of the reader of standard
/// output (SIGPIPE). The last three stay ignored if they were, as SIGHUP under nohup.
///
/// A held signal can be polled, and is taken by the loop that runs the job. If the process still lives 4 s after the
/// second request (net::StopRequests), because that loop does not come round, the thread ends the process.
///
/// Make it in main, before the first thread, because threads inherit the signal mask. The destructor restores the
/// signals' effect, but SIGPIPE stays blocked, so that a program whose job has ended keeps its exit status.
class SignalWatch {
 public:
  enum class Effect : std::uint8_t {
    held,          ///< signals wait for `take`
    ends_process,  ///< a signal ends this process at once: nothing has begun that has to be ended in order
  };

  explicit SignalWatch(Effect effect = Effect::held);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// From here on signals are held.
  void hold();
  /// Readable while a held signal waits.
  int fd() const { return waiting_.get(); }
  /// Returns the next signal that has arrived, or nothing. Never waits.
  std::optional<int> take();
  /// Once the job has ended: drops the signals that have come, and lets the next one end this process at once,
  /// unless it is SIGPIPE.
  void end();

 private:
  void run(const std::stop_token& stop);
  void receive() PSRING_REQUIRES(mutex_);

  sigset_t before_;
  Fd signals_;
  Fd waiting_;  ///< an eventfd: the number of held signals
  Fd wake_;     ///< an eventfd: ends the thread
  const SystemClock clock_;
  Mutex mutex_;
  Effect effect_ PSRING_GUARDED_BY(mutex_);
  bool over_ PSRING_GUARDED_BY(mutex_) = false;  ///< after `end`
  std::deque<int> held_ PSRING_GUARDED_BY(mutex_);
  net::StopRequests requests_ PSRING_GUARDED_BY(mutex_);
  int last_signal_ PSRING_GUARDED_BY(mutex_) = 0;
  /// When the thread ends the process by `last_signal_`.
  std::optional<Moment> last_moment_ PSRING_GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// The exit status of a program that a signal ended: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 131 for SIGQUIT,
/// 138 for SIGUSR1, 141 for SIGPIPE.
constexpr int interrupted_status(int signal) { return 128 + signal; }

/// Ends this process by the signal that was taken, without a core dump. A process with number 1, which signals cannot
/// end, exits with interrupted_status.
[[noreturn]] void die_of(int signal);

}  // namespace psring
