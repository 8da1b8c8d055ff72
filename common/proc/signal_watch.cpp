#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/signal_watch.h>

namespace psring {
namespace {

constexpr Nanoseconds kLastMoments = std::chrono::seconds(4);  ///< after the second request

sigset_t watched_signals() {
  sigset_t watched;
  ::sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaddset(&watched, signal);
  for (const int signal : {SIGHUP, SIGQUIT, SIGPIPE}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&watched, signal);
  }
  return watched;
}

}  // namespace

SignalWatch::SignalWatch(Effect effect)
    : waiting_(make_eventfd(EFD_SEMAPHORE)), wake_(make_eventfd()), effect_(effect) {
  const sigset_t watched = watched_signals();
  signals_ = Fd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  check(static_cast<bool>(signals_), "cannot create a signalfd: {}", std::strerror(errno));
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);  // the thread inherits it
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::pthread_sigmask(SIG_BLOCK, &watched, nullptr);
}

SignalWatch::~SignalWatch() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  signalfd_siginfo dropped;
  while (::read(signals_.get(), &dropped, sizeof dropped) == sizeof dropped) {  // unblocked, they would end the process
  }
  ::sigaddset(&before_, SIGPIPE);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void SignalWatch::hold() {
  const MutexLock lock(mutex_);
  effect_ = Effect::held;
}

std::optional<int> SignalWatch::take() {
  const MutexLock lock(mutex_);
  if (held_.empty()) return std::nullopt;
  eventfd_t one = 0;
  ::eventfd_read(waiting_.get(), &one);
  const int signal = held_.front();
  held_.pop_front();
  return signal;
}

void SignalWatch::end() {
  const MutexLock lock(mutex_);
  effect_ = Effect::held;
  receive();
  for (; !held_.empty(); held_.pop_front()) {
    eventfd_t one = 0;
    ::eventfd_read(waiting_.get(), &one);
  }
  effect_ = Effect::ends_process;
  over_ = true;
  last_moment_.reset();
}

void SignalWatch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Moment until = kNever;
    {
      const MutexLock lock(mutex_);
      receive();
      if (last_moment_ && clock_.now() >= *last_moment_) die_of(last_signal_);
      until = last_moment_.value_or(until);
    }
    pollfd polled[] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, poll_milliseconds(clock_.now(), until));
  }
}

/// Reads the signals that have come.
void SignalWatch::receive() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (effect_ == Effect::ends_process) {
      if (over_ && signal == SIGPIPE) continue;
      die_of(signal);
    }
    last_signal_ = signal;
    if (requests_.take(signal, clock_.now()) == net::StopRequests::Request::again && !last_moment_)
      last_moment_ = clock_.now() + kLastMoments;
    held_.push_back(signal);
    ::eventfd_write(waiting_.get(), 1);
  }
}

void die_of(int signal) {
  ::prctl(PR_SET_DUMPABLE, 0);  // SIGQUIT would leave a core
  sigset_t own;
  ::sigemptyset(&own);
  ::sigaddset(&own, signal);
  ::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
  ::raise(signal);
  ::_exit(interrupted_status(signal));
}

}  // namespace psring
