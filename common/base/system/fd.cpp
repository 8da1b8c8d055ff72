#include <cerrno>
#include <cstring>

#include <sys/eventfd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>

namespace psring {

Fd make_eventfd(int flags) {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | flags));
  if (!fd) fail(ErrorKind::data, "cannot make an eventfd: {}", std::strerror(errno));
  return fd;
}

}  // namespace psring
