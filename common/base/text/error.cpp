#include <algorithm>
#include <filesystem>
#include <iterator>
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
  static constexpr int kStatuses[] = {1, 2, 3, 4, 4, 4, 5, 6};  // in the order of ErrorKind
  const auto place = static_cast<std::size_t>(kind);
  return place < std::size(kStatuses) ? kStatuses[place] : 1;
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
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&exception))
    return Error(ErrorKind::data, fmt::format("{}: {}", error->path1().string(), error->code().message()));
  if (dynamic_cast<const std::system_error*>(&exception) != nullptr) return Error(ErrorKind::data, exception.what());
  return Error(ErrorKind::bug, fmt::format("internal error: {}", exception.what()));
}

}  // namespace psring
