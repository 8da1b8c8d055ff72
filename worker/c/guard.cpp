#include <algorithm>
#include <string>
#include <string_view>

#include <psring/worker/c/guard.h>

namespace psring::c {
namespace {

psring_status status_of(ErrorKind kind) {
  static constexpr psring_status kStatuses[] = {PSRING_BUG,          PSRING_USAGE,   PSRING_DATA,
                                                PSRING_PEER_LOST,    PSRING_TIMEOUT, PSRING_PROTOCOL,
                                                PSRING_UNAUTHORISED, PSRING_BUG};  // in the order of ErrorKind
  return kStatuses[static_cast<std::size_t>(kind)];
}

/// The C interface's contract asks for one line a thread, as errno is one number a thread.
std::string& line() {
  thread_local std::string text;
  return text;
}

void keep_line(std::string_view text) noexcept {
  try {
    line() = text;
  } catch (...) {
    line().clear();
  }
}

}  // namespace

psring_status keep(const Error& error) noexcept {
  keep_line(error.what());
  return status_of(error.kind());
}

psring_status pending(const std::string& line) noexcept {
  keep_line(line);
  return PSRING_PENDING;
}

Moment moment_in(double timeout) {
  if (!(timeout >= 0)) fail(ErrorKind::usage, "a timeout of {} seconds", timeout);
  return SystemClock().now() + from_seconds(std::min(timeout, kLongestWait));
}

const char* kept_line() noexcept { return line().c_str(); }

}  // namespace psring::c
