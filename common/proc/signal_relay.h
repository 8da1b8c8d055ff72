#pragma once

#include <stop_token>
#include <thread>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/signal_watch.h>
#include <psring/common/proc/stop.h>

namespace psring {

/// Reports the signals of a server's or worker's process to the coordinator, from a thread of its own. The first signal
/// ends the job after the current step, the second request (net::StopRequests) ends job and process at once. After the
/// job has failed, the first signal ends the process. If the process still lives 4 s after the job has failed, because
/// it computes, the thread ends it: a role that was started by hand has no agent to do so.
class SignalRelay {
 public:
  /// `leaves`: the first signal ends this process at once, without a report to the job. REQUIRES: both outlive it, and
  /// the thread alone takes the signals.
  SignalRelay(SignalWatch& signals, net::ControlLink& link, const Clock& clock, bool leaves = false);
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

 private:
  void run(const std::stop_token& stop);
  void pass_on(int signal);
  [[noreturn]] void leave();

  SignalWatch& signals_;
  net::ControlLink& link_;
  const Clock& clock_;
  const bool leaves_;
  const Fd wake_;
  net::StopRequests requests_;  ///< used by the thread alone
  std::jthread thread_;
};

}  // namespace psring
