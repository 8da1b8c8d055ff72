#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <psring/common/base/system/standard_files.h>

namespace psring {
namespace {

constexpr int kPatienceMs = 1000;  ///< for a terminal that takes nothing

/// The errno of the first write to standard output that failed; 0: none. It belongs to stdout's error flag, which does
/// not keep the reason.
std::atomic<int> output_failure = 0;

void note_failure(int error) {
  int none = 0;
  output_failure.compare_exchange_strong(none, error);
}

/// Holds back the SIGPIPE of this thread's own writes.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    was_pending_ = is_pending();
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    if (!was_pending_ && is_pending()) ::sigtimedwait(&sigpipe_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  static bool is_pending() {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGPIPE) == 1;
  }

  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

}  // namespace

void open_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // open(2) returns the lowest free number, which is fd.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
}

void raise_open_files_limit() {
  constexpr rlim_t kEnough = 65'536;  // for all peers of the largest job on a host
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  ::setrlimit(RLIMIT_NOFILE, &limit);  // a failure leaves the limit as it was; the file that is too many tells
}

void out::text(std::string_view text) noexcept {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size()) note_failure(errno);
}

void out::error(std::string_view cause) noexcept {
  const NoSigpipe no_sigpipe;
  pollfd polled{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&polled, 1, kPatienceMs) == 0) return;
  // One call, so that the lines of several processes on one terminal do not mix.
  std::fprintf(stderr, "%s%.*s\n", kErrorPrefix.data(), static_cast<int>(cause.size()), cause.data());
}

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) note_failure(errno);
  if (std::ferror(stdout) != 0 || output_failure != 0) throw standard_output_error(output_failure);
}

Error standard_output_error(int error) {
  return {ErrorKind::data, fmt::format("standard output: cannot write{}{}", error != 0 ? ": " : "",
                                       error != 0 ? std::strerror(error) : "")};
}

}  // namespace psring
