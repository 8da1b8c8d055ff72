#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace psring {

/// The kind of a failure, which tells a caller how to react. Each kind has one exit status.
enum class ErrorKind {
  bug,           ///< 1: a defect of psring, or of a layer, strategy or data set that a program adds
  usage,         ///< 2: a flag or an argument is wrong
  data,          ///< 3: bad data, file or configuration
  peer_lost,     ///< 4: a peer died or fell silent
  timeout,       ///< 4: a deadline passed
  protocol,      ///< 4: a peer sent a message that the protocol does not allow
  unauthorised,  ///< 5: this process or a peer does not hold the job's key
  check_failed,  ///< 6: measured bytes, memory or equality differ from the prediction
};

/// psring's programs end with one line on stderr: this prefix and the error.
inline constexpr std::string_view kErrorPrefix = "psring: ";

/// Returns the exit status of a program that ends with an error of this kind.
int exit_status(ErrorKind kind) noexcept;
/// Returns a kind with this exit status, for a process that failed; `bug` if no kind has it.
ErrorKind kind_of_status(int status) noexcept;

/// psring's exception: a kind, and one line that names the file, flag or peer. Control characters in the line become
/// spaces, because the line may quote untrusted text. Each layer adds its context in front with `with_context`; the
/// cause stays in the line.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message);
  ErrorKind kind() const noexcept { return kind_; }

  /// Returns the same error with `context: ` in front of its line.
  Error with_context(const std::string& context) const { return Error(kind_, context + ": " + what()); }

 private:
  ErrorKind kind_;
};

/// Converts any exception to an Error. An Error stays as it is. A lack of memory or threads is `data` (the job asks for
/// more than this machine has), as is a failure of the file system; any other exception is a bug.
Error to_error(const std::exception& exception);

/// Throws Error(kind) with a formatted line.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(bug) if an invariant of psring itself does not hold. For bad input use `fail`.
template <class... Args>
void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorKind::bug, format, std::forward<Args>(args)...);
}

}  // namespace psring
