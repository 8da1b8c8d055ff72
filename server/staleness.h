#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace psring::server {

/// How old a gradient was when the server applied it.
struct Staleness {
  std::uint64_t staleness = 0;  ///< updates by other workers since the values from which the gradient was computed
  std::uint64_t lag = 0;        ///< the worker's clock minus the slowest worker's
};

/// Sums up the staleness of all gradients of one worker; each piece counts.
struct StalenessRecord {
  static constexpr std::size_t kMost = 64;  ///< the last bin counts this staleness and all above

  void add(const Staleness& gradient) {
    ++updates;
    sum += gradient.staleness;
    most = std::max(most, gradient.staleness);
    most_lag = std::max(most_lag, gradient.lag);
    const std::size_t bin = std::min<std::uint64_t>(gradient.staleness, kMost);
    if (bins.size() <= bin) bins.resize(bin + 1);
    ++bins[bin];
  }

  void merge(const StalenessRecord& other) {
    updates += other.updates;
    dropped += other.dropped;
    sum += other.sum;
    most = std::max(most, other.most);
    most_lag = std::max(most_lag, other.most_lag);
    if (bins.size() < other.bins.size()) bins.resize(other.bins.size());
    for (std::size_t bin = 0; bin < other.bins.size(); ++bin) bins[bin] += other.bins[bin];
  }

  std::uint64_t updates = 0;
  std::uint64_t dropped = 0;  ///< pushes that came after their update was made (--backup-workers)
  std::uint64_t sum = 0;      ///< of staleness
  std::uint64_t most = 0;     ///< the largest staleness
  std::uint64_t most_lag = 0;
  std::vector<std::uint64_t> bins;  ///< number of updates by staleness
};

}  // namespace psring::server
