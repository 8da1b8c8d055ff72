#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <psring/common/base/range.h>

namespace psring {

/// A fixed team of threads that share loops; the caller is one of them. With one thread it is a plain
/// call. Belongs to one calling thread.
class Parallel {
 public:
  explicit Parallel(std::size_t threads);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  std::size_t threads() const;
  /// Cuts [0, size) into one slice for each thread, on multiples of `grain`, calls `body` with each and
  /// returns when all are done. A throw of any body is thrown here.
  void for_slices(std::size_t size, std::size_t grain, const std::function<void(Range)>& body);

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

}  // namespace psring
