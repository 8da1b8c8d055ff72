#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/proc/signal_watch.h>

namespace psring {

SignalWatch::SignalWatch() {
  sigset_t watched;
  ::sigemptyset(&watched);
  ::sigaddset(&watched, SIGINT);
  ::sigaddset(&watched, SIGTERM);
  ::sigaddset(&watched, SIGUSR1);
  struct sigaction hang_up {};
  ::sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) ::sigaddset(&watched, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &watched, &before_);
  fd_ = Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  check(static_cast<bool>(fd_), "cannot create a signalfd: {}", std::strerror(errno));
}

SignalWatch::~SignalWatch() { end(); }

void SignalWatch::end() {
  if (!fd_) return;
  while (take()) {  // drops signals that have come: unblocked, they would end the process while it exits
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  fd_ = Fd();
}

std::optional<int> SignalWatch::take() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

void die_of(int signal) {
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, signal);
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  ::raise(signal);
}

}  // namespace psring
