#pragma once

#include <cstddef>

#include <psring/bench/cost/mesh.h>
#include <psring/ring/plan/tuning.h>

namespace psring::bench {

/// Pure formulas: times in seconds, sizes in bytes. docs/formulas.md derives each of them.

/// Bytes that precede each frame's payload.
inline constexpr double kHeaderBytes = 128;

/// A collective at one rank: how long it occupies the card in each direction, and how long it takes if nothing else
/// uses the card.
struct CollectiveTime {
  double bytes = 0;  ///< payload in the busier direction
  double occupies_s = 0;
  double alone_s = 0;
};

/// An all-reduce of a vector among n ranks with one card each, by an algorithm of ring/plan in messages of a segment.
CollectiveTime all_reduce_time(const net::LinkSpec& link, std::size_t n, double bytes,
                               const ring::Tuning::Row& algorithm);
/// A reduce-scatter or an all-gather: half of the ring, or one message to each rank if the algorithm is one for small
/// vectors.
CollectiveTime scatter_time(const net::LinkSpec& link, std::size_t n, double bytes, const ring::Tuning::Row& algorithm);

/// The time of one round of a parameter-server exchange without overlap: every worker pushes Mg and pulls Mp, s servers
/// have a card each, and all bytes stream: max(n (Mg + Mp)/(sB) ...) halves run one after the other per unit.
double server_exchange_s(const net::LinkSpec& link, std::size_t n, std::size_t servers, double gradient_bytes,
                         double parameter_bytes);

/// BytePS (Jiang et al., OSDI 2020, section 3.1): n hosts with a GPU worker each and k hosts with processors only,
/// cards of B bytes a second, a gradient of M bytes. Returns the least time of a push and pull, in which each spare
/// host takes the larger share: 2 n (n - 1) M / ((n^2 + k n - 2 k) B).
double byteps_optimum_s(double n, double k, double bytes, double bytes_per_s);
/// The shares of the gradient that a spare host and a worker's host sum up in that optimum, each of M.
struct BytePsShares {
  double spare_host = 0;
  double worker_host = 0;
};
BytePsShares byteps_shares(double n, double k);
/// 2 (n - 1) M / (n B): a ring all-reduce, without latencies.
double ring_bound_s(double n, double bytes, double bytes_per_s);
/// n M / (s B) each way: the card of one of s servers; M / B if the workers' cards are slower. Push and pull overlap
/// where `duplex`, so that only one direction counts.
double server_bound_s(double n, double s, double bytes, double bytes_per_s);

/// Bytes that leave each host for a step of hybrid sharding: shard groups within a host, replicas between h hosts.
double hybrid_bytes_per_host(double hosts, double gradient_bytes);
/// The same for sharding over all hosts by a hierarchical plan: an all-gather for each pass, and a reduce-scatter.
double full_sharding_bytes_per_host(double hosts, double gradient_bytes, double parameter_bytes, double gathers);

/// The expected largest of n independent normal values of mean 1 and standard deviation `deviation` (Blom, 1958). A
/// synchronous step waits for the slowest of n workers.
double expected_slowest(std::size_t n, double deviation);

}  // namespace psring::bench
