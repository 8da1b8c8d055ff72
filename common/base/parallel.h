#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <psring/common/base/range.h>

namespace psring {

/// A fixed team of threads that share loops. The caller is a member of the team; with one thread, a loop is a plain
/// call. Only one thread may call the team.
class Parallel {
 public:
  explicit Parallel(std::size_t threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  std::size_t threads() const;
  /// Cuts [0, size) at multiples of `grain` into one slice per thread, calls `body` with each slice, and returns when
  /// all slices are done. Rethrows an exception of any body.
  void for_slices(std::size_t size, std::size_t grain, const std::function<void(Range)>& body);

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

}  // namespace psring
