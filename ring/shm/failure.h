#pragma once

#include <optional>

#include <psring/common/base/error.h>
#include <psring/ring/shm/bells.h>
#include <psring/ring/shm/control.h>

namespace psring::ring {

/// The error that ended a group. The rank that finds the first error writes it into the group's header, where all ranks
/// read it, so that all ranks report the first cause.
class ShmFailure {
 public:
  ShmFailure(ShmGroupHeader& header, ShmBells& bells) : header_(header), bells_(bells) {}

  /// Throws the error if this rank knows of one.
  void rethrow() const {
    if (error_) throw *error_;
  }
  /// The same, but looks into the header first.
  void check();
  /// Ends the group here and at its other ranks. Does nothing if it has ended already.
  void break_off(const Error& error) noexcept;
  [[noreturn]] void end(const Error& error) {
    break_off(error);
    throw error;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  ShmGroupHeader& header_;
  ShmBells& bells_;
  std::optional<Error> error_;
};

}  // namespace psring::ring
