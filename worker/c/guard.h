#pragma once

#include <exception>
#include <string>

#include <psring/c.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>

namespace psring::c {

/// Keeps the line of the calling thread's last error, for psring_last_error; returns the error's status.
psring_status keep(const Error& error) noexcept;
/// Keeps the description of the calling thread's wait in the same place; returns PSRING_PENDING.
psring_status pending(const std::string& line) noexcept;
/// The line that was kept last.
const char* kept_line() noexcept;

/// Returns the moment that is this number of seconds from now. Throws usage if the number is negative or NaN.
Moment moment_in(double timeout);

/// Calls `body`, which returns a status; no exception leaves it.
template <class Body>
psring_status guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    try {
      return keep(to_error(error));
    } catch (...) {
      return PSRING_BUG;
    }
  } catch (...) {
    return PSRING_BUG;
  }
}

/// Throws usage, naming function and argument, if the pointer is null.
template <class T>
void require(const T* pointer, const char* what) {
  if (pointer == nullptr) fail(ErrorKind::usage, "{} is null", what);
}

}  // namespace psring::c
