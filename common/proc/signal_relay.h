#pragma once

#include <stop_token>
#include <thread>

#include <psring/common/base/clock.h>
#include <psring/common/base/fd.h>
#include <psring/common/proc/control_link.h>
#include <psring/common/proc/signal_watch.h>
#include <psring/common/proc/stop.h>

namespace psring {

/// Tells the coordinator of signals that a server's or worker's process gets, from a thread of its own: the first ends
/// the job after the step under way, the second request (net::StopRequests) the job and this process at once. A job
/// that has failed has nothing to end: then the first signal ends the process.
class SignalRelay {
 public:
  /// REQUIRES: both outlive it, and the thread alone takes the signals.
  SignalRelay(SignalWatch& signals, net::ControlLink& link, const Clock& clock);
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

 private:
  void run(const std::stop_token& stop);
  void pass_on(int signal);

  SignalWatch& signals_;
  net::ControlLink& link_;
  const Clock& clock_;
  const Fd wake_;
  net::StopRequests requests_;  ///< the thread's
  std::jthread thread_;
};

}  // namespace psring
