#include <psring/common/base/error.h>

namespace psring {

int exit_status(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::bug:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::data:
      return 3;
    case ErrorKind::peer_lost:
    case ErrorKind::timeout:
    case ErrorKind::protocol:
      return 4;
    case ErrorKind::unauthorised:
      return 5;
    case ErrorKind::check_failed:
      return 6;
  }
  return 1;
}

}  // namespace psring
