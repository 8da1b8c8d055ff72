#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <type_traits>

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
inline constexpr double kLongestWait = 1e9;  ///< 30 years; more nanoseconds than 2^63 would overflow

/// Calls `body`, which returns a status, or nothing if it is complete; no exception leaves it.
template <class Body>
psring_status guarded(Body body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return PSRING_OK;
    } else {
      return body();
    }
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

/// A pointer that a caller passes, and its name.
struct Argument {
  const void* pointer;
  const char* name;
};
/// The same for several arguments of a function.
inline void require(const char* function, std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments)
    if (argument.pointer == nullptr) fail(ErrorKind::usage, "{}: {} is null", function, argument.name);
}

/// Writes counted bytes to a function's arguments.
inline void write_moved(const auto& moved, std::uint64_t* sent, std::uint64_t* received) {
  *sent = moved.sent;
  *received = moved.received;
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
