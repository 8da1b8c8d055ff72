#include <algorithm>
#include <new>
#include <system_error>

#include <psring/common/base/text/error.h>

namespace psring {
namespace {

std::string in_one_line(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string message) : std::runtime_error(in_one_line(std::move(message))), kind_(kind) {}

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

Error to_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  const bool too_large = dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
                         dynamic_cast<const std::length_error*>(&exception) != nullptr;
  if (too_large) return Error(ErrorKind::data, "out of memory");
  if (dynamic_cast<const std::system_error*>(&exception) != nullptr) return Error(ErrorKind::data, exception.what());
  return Error(ErrorKind::bug, fmt::format("internal error: {}", exception.what()));
}

}  // namespace psring
