#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/guarded_folder.h>
#include <psring/common/proc/signal_watch.h>

namespace psring {
namespace {

constexpr std::array kEndings{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

Fd checked(int fd) {
  check(fd >= 0, "cannot wait for signals: {}", std::strerror(errno));
  return Fd(fd);
}

}  // namespace

HeldSignals::HeldSignals() {
  ::sigemptyset(&held_);
  for (const int signal : kEndings) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&held_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void HeldSignals::check() const {
  sigset_t come;
  ::sigpending(&come);
  for (const int signal : kEndings)
    if (::sigismember(&held_, signal) == 1 && ::sigismember(&come, signal) == 1)
      fail(ErrorKind::peer_lost, "interrupted by {}", ::strsignal(signal));
}

GuardedFolder::GuardedFolder(const std::string& name)
    : folder_(name),
      come_(checked(::signalfd(-1, &signals_.held(), SFD_CLOEXEC | SFD_NONBLOCK))),
      done_(make_eventfd()),
      thread_([this] { watch(); }) {}

GuardedFolder::~GuardedFolder() {
  ::eventfd_write(done_.get(), 1);
  thread_.join();
}

void GuardedFolder::watch() const {
  // A SIGPIPE waits for the thread that has written, so that its cause is looked for instead.
  const bool pipe = ::sigismember(&signals_.held(), SIGPIPE) == 1;
  std::array<pollfd, 3> polled{{{come_.get(), POLLIN, 0}, {done_.get(), POLLIN, 0}, {pipe ? STDOUT_FILENO : -1, 0, 0}}};
  while (true) {
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[1].revents != 0) return;
    signalfd_siginfo info{};
    const bool signalled = ::read(come_.get(), &info, sizeof info) == sizeof info;
    if (!signalled && (polled[2].revents & (POLLERR | POLLHUP)) != POLLERR) {
      if (polled[2].revents != 0) polled[2].fd = -1;  // a terminal that has closed sends SIGHUP
      continue;
    }
    folder_.remove();
    die_of(signalled ? static_cast<int>(info.ssi_signo) : SIGPIPE);
  }
}

}  // namespace psring
