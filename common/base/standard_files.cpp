#include <cerrno>
#include <initializer_list>

#include <fcntl.h>
#include <unistd.h>

#include <psring/common/base/standard_files.h>

namespace psring {

void open_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // open(2) returns the lowest free number, which is fd.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
}

}  // namespace psring
