#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace psring {

/// What went wrong, as far as a caller can act on it; each kind has one exit status.
enum class ErrorKind {
  bug,           ///< 1: a defect of psring, or of a layer, strategy or data set that a program adds
  usage,         ///< 2: a flag or an argument is wrong
  data,          ///< 3: bad data, file or configuration
  peer_lost,     ///< 4: a peer died or fell silent
  timeout,       ///< 4: a deadline passed
  protocol,      ///< 4: a peer sent what the protocol does not allow
  unauthorised,  ///< 5: a peer or we do not hold the job's key
  check_failed,  ///< 6: measured bytes, memory or equality differ from the prediction
};

/// Programs of psring end with one line on stderr: this and the error.
inline constexpr std::string_view kErrorPrefix = "psring: ";

/// The exit status of a program that ends with an error of this kind.
int exit_status(ErrorKind kind) noexcept;
/// The other way round, of a process that failed: a kind with this exit status; bug where none has it.
ErrorKind kind_of_status(int status) noexcept;

/// The exception of psring: a kind and one line that names the file, flag or peer. What the line quotes may be
/// anybody's: control characters in it become spaces. Layers that know more add it in front with `with_context`, and
/// the cause stays in the line.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message);
  ErrorKind kind() const noexcept { return kind_; }

  /// The same error with `context: ` in front of its line.
  Error with_context(const std::string& context) const { return Error(kind_, context + ": " + what()); }

 private:
  ErrorKind kind_;
};

/// What an exception that came from elsewhere means: an Error is itself. Memory or threads that the system does not
/// give are data (more was asked for than this machine has), anything else is a bug.
Error to_error(const std::exception& exception);

/// Throws Error(kind) with a formatted line.
template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(bug) when an invariant of psring itself does not hold. For bad input use `fail`.
template <class... Args>
void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorKind::bug, format, std::forward<Args>(args)...);
}

}  // namespace psring
