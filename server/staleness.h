#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace psring::server {

/// Of one gradient, when it is applied.
struct Staleness {
  std::uint64_t staleness = 0;  ///< others' updates between the values that it was computed from and its own
  std::uint64_t lag = 0;        ///< its worker's clock minus the slowest's
};

/// Of all gradients of a worker, piece by piece.
struct StalenessRecord {
  static constexpr std::size_t kMost = 64;  ///< the last bin counts these and more

  void add(const Staleness& of) {
    ++updates;
    sum += of.staleness;
    most = std::max(most, of.staleness);
    most_lag = std::max(most_lag, of.lag);
    const std::size_t bin = std::min<std::uint64_t>(of.staleness, kMost);
    if (bins.size() <= bin) bins.resize(bin + 1);
    ++bins[bin];
  }

  std::uint64_t updates = 0;
  std::uint64_t dropped = 0;  ///< pushes that came after their update was made (--backup-workers)
  std::uint64_t sum = 0;      ///< of staleness
  std::uint64_t most = 0;
  std::uint64_t most_lag = 0;
  std::vector<std::uint64_t> bins;  ///< updates by staleness
};

}  // namespace psring::server
