#pragma once

#include <cstddef>
#include <map>

namespace psring::cli {

/// The rate at which this host's processors together read and write memory, in bytes (read and written) per second. The
/// rate depends on the size of the working set, because small sets stay in caches; so it is measured once per power of
/// two.
class MemoryBandwidth {
 public:
  /// `threads`: number of threads that copy at once.
  explicit MemoryBandwidth(std::size_t threads) : threads_(threads) {}

  /// Returns the rate; the first call for a size measures for some 50 ms. `working_set_bytes`: bytes of all threads
  /// together.
  double bytes_per_second(std::size_t working_set_bytes);

 private:
  const std::size_t threads_;
  std::map<std::size_t, double> measured_;  ///< by working set
};

}  // namespace psring::cli
