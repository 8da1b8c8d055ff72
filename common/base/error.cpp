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

ErrorKind kind_of_status(int status) noexcept {
  for (const ErrorKind kind :
       {ErrorKind::usage, ErrorKind::data, ErrorKind::peer_lost, ErrorKind::unauthorised, ErrorKind::check_failed})
    if (exit_status(kind) == status) return kind;
  return ErrorKind::bug;
}

}  // namespace psring
