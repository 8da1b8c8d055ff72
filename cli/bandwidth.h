#pragma once

#include <cstddef>
#include <map>

namespace psring::cli {

/// The rate at which this host's processors read and write memory, all at once, in bytes of both a second. It depends
/// on how much they pass over, as small sets stay in caches: so it is measured for that, once for each power of two.
class MemoryBandwidth {
 public:
  /// `threads`: that copy at once.
  explicit MemoryBandwidth(std::size_t threads) : threads_(threads) {}

  /// Measures for some 50 ms where it has not yet. `working_set_bytes`: of all threads together.
  double bytes_per_second(std::size_t working_set_bytes);

 private:
  const std::size_t threads_;
  std::map<std::size_t, double> measured_;  ///< by working set
};

}  // namespace psring::cli
