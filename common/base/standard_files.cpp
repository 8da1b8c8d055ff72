#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <psring/common/base/standard_files.h>

namespace psring {

void open_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // open(2) returns the lowest free number, which is fd.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
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
