#pragma once

#include <algorithm>

namespace psring::test {

/// Bounds of a step's communication that no overlap beats: docs/formulas.md derives each of them.

/// BytePS (Jiang et al., OSDI 2020, section 3.1): n hosts with a GPU worker each and k hosts with processors only,
/// cards of B bytes a second, a gradient of M bytes. Returns the least time of a push and pull, in which each spare
/// host takes the larger share: 2 n (n - 1) M / ((n^2 + k n - 2 k) B).
inline double byteps_optimum_s(double n, double k, double bytes, double bytes_per_s) {
  return 2 * n * (n - 1) * bytes / ((n * n + k * n - 2 * k) * bytes_per_s);
}
/// The shares of the gradient that a spare host and a worker's host sum up in that optimum, each of M.
struct BytePsShares {
  double spare_host = 0;
  double worker_host = 0;
};
inline BytePsShares byteps_shares(double n, double k) {
  const double whole = n * n + k * n - 2 * k;
  return {2 * (n - 1) / whole, (n - k) / whole};
}
/// 2 (n - 1) M / (n B): a ring all-reduce, without latencies.
inline double ring_bound_s(double n, double bytes, double bytes_per_s) { return 2 * (n - 1) / n * bytes / bytes_per_s; }
/// n M / (s B) each way: the card of one of s servers; M / B if the workers' cards are slower.
inline double server_bound_s(double n, double s, double bytes, double bytes_per_s) {
  return std::max(1.0, n / s) * bytes / bytes_per_s;
}

/// Bytes that leave each host for a step of hybrid sharding: shard groups within a host, replicas between h hosts.
inline double hybrid_bytes_per_host(double hosts, double gradient_bytes) {
  return 2 * (hosts - 1) / hosts * gradient_bytes;
}
/// The same for sharding over all hosts by a hierarchical plan: an all-gather for each pass, and a reduce-scatter.
inline double full_sharding_bytes_per_host(double hosts, double gradient_bytes, double parameter_bytes,
                                           double gathers) {
  return (hosts - 1) / hosts * (gradient_bytes + gathers * parameter_bytes);
}

}  // namespace psring::test
