#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/eventfd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>

namespace psring {

Fd make_eventfd(int flags) {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | flags));
  if (!fd) fail(ErrorKind::data, "cannot make an eventfd: {}", std::strerror(errno));
  return fd;
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(ErrorKind::data, "cannot create a pipe: {}", std::strerror(errno));
  return {Fd(ends[0]), Fd(ends[1])};
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace psring
