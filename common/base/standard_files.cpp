#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <psring/common/base/standard_files.h>

namespace psring {

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

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw standard_output_error(errno);
}

Error standard_output_error(int error) {
  return {ErrorKind::data, fmt::format("standard output: cannot write{}{}", error != 0 ? ": " : "",
                                       error != 0 ? std::strerror(error) : "")};
}

}  // namespace psring
