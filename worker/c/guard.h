#pragma once

#include <cstddef>
#include <cstring>
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

/// Copies a struct that begins with its size. A program that was built with an older header has fewer members: the
/// others are those of `standard`. Throws usage if the size ends within a member, or is larger than this library's.
template <class Struct>
Struct whole(const Struct* given, const char* what, Struct standard = {}) {
  require(given, what);
  if (given->size < sizeof(std::size_t) || given->size > sizeof standard || given->size % sizeof(std::size_t) != 0)
    fail(ErrorKind::usage, "{} of {} bytes; this library knows {}", what, given->size, sizeof standard);
  std::memcpy(&standard, given, given->size);
  return standard;
}

}  // namespace psring::c
