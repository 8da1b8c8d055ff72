#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/cli/output.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/proc/signal_watch.h>

namespace psring::cli {
namespace {

constexpr int kSignalStatus = 128;                          ///< statuses above it: a signal ended the program
constexpr Nanoseconds kPatience = std::chrono::seconds(1);  ///< of a program that a signal ends

/// Returns whether a write to the file can wait for a reader.
bool may_wait(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && !S_ISREG(status.st_mode) && (!S_ISCHR(status.st_mode) || ::isatty(fd) != 0);
}

}  // namespace

Output::Output() : terminal_(::isatty(STDOUT_FILENO) != 0) {
  int ends[2];
  if (!may_wait(STDOUT_FILENO) || ::pipe2(ends, O_CLOEXEC) != 0) return;
  read_ = Fd(ends[0]);
  const Fd write_end(ends[1]);
  Fd real(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  std::fflush(stdout);
  if (!real || ::dup2(write_end.get(), STDOUT_FILENO) < 0) return;
  ::fcntl(read_.get(), F_SETFL, O_NONBLOCK);
  if (terminal_) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  real_ = std::move(real);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);  // signals go to the threads that expect them
  thread_ = std::jthread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Output::~Output() { stop(kNever); }

void Output::stop(Moment patience) {
  patience_ = patience;
  const int error = std::fflush(stdout) != 0 ? errno : 0;
  if (real_) {
    ::dup2(real_.get(), STDOUT_FILENO);  // closes the pipe, which ends the thread
    thread_.join();
    real_ = Fd();
  }
  if (failure_ == 0) failure_ = error;
}

int Output::end(int status) {
  stop(status > kSignalStatus ? SystemClock().now() + kPatience : kNever);
  if (status != 0) return status;
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  if (failure_ == EPIPE && action.sa_handler == SIG_DFL) die_of(SIGPIPE);
  if (failure_ != 0) throw standard_output_error(failure_);
  flush_standard_output();
  return 0;
}

std::size_t Output::columns() const {
  winsize size{};
  const int fd = real_ ? real_.get() : STDOUT_FILENO;
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

void Output::settle() const {
  std::fflush(stdout);
  if (!real_) return;
  MutexLock lock(mutex_);
  const auto is_read = [this] {
    int unread = 0;
    return waiting_ == 0 && ::ioctl(read_.get(), FIONREAD, &unread) == 0 && unread == 0;
  };
  idle_.wait_for(mutex_, std::chrono::seconds(1), is_read);
}

void Output::take(const char* text, std::size_t size) {
  const std::size_t room = kMost - std::min(kMost, queue_.size());
  queue_.append(text, std::min(size, room));
  dropped_ += size - std::min(size, room);
}

/// Writes as many bytes as cannot block. Returns false if nothing can be written any more.
bool Output::write_some() {
  const ssize_t written = ::write(real_.get(), queue_.data(), std::min<std::size_t>(queue_.size(), PIPE_BUF));
  if (written < 0) return errno == EINTR || errno == EAGAIN;
  queue_.erase(0, static_cast<std::size_t>(written));
  if (queue_.empty() && dropped_ > 0)
    queue_ =
        fmt::format("[{} bytes of output were dropped here, because nothing read them]\n", std::exchange(dropped_, 0));
  return true;
}

void Output::run() {
  std::array<char, 65536> piece;
  for (bool open = true, readable = true; open || !queue_.empty();) {
    pollfd polled[] = {{open ? read_.get() : -1, POLLIN, 0}, {queue_.empty() ? -1 : real_.get(), POLLOUT, 0}};
    const Moment now = SystemClock().now();
    if (!open && now >= patience_.load()) return;
    ::poll(polled, 2, open ? -1 : poll_milliseconds(now, patience_));
    if (polled[0].revents != 0) {
      const MutexLock lock(mutex_);
      const ssize_t size = ::read(read_.get(), piece.data(), piece.size());
      if (size > 0) take(piece.data(), readable ? static_cast<std::size_t>(size) : 0);
      if (size == 0) open = false;
      waiting_ = queue_.size();
    }
    if (polled[1].revents != 0 && !write_some()) {
      failure_ = errno;
      if (failure_ == EPIPE) ::kill(::getpid(), SIGPIPE);  // as a direct write would do; a SignalWatch takes it
      readable = false;
      queue_.clear();
    }
    const MutexLock lock(mutex_);
    waiting_ = queue_.size();
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace psring::cli
