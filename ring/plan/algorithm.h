#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <psring/ring/plan/plan.h>

namespace psring::ring {

/// An algorithm for an all-reduce between processes that exchange messages. M: the bytes of the vector, n: the ranks.
struct Algorithm {
  std::string_view name;  ///< as --algorithm and tuning tables spell it
  /// The actions of one rank. REQUIRES: more than one rank, more than zero elements.
  Plan (*plan)(const Planner& planner, std::size_t count);
  /// Messages that can only leave one after another: how often the delay of a link counts. REQUIRES: ranks > 1.
  std::size_t (*latencies)(std::size_t ranks);
  /// Made for small vectors: the other collectives of such a size send straight to the owner, and broadcast by a tree.
  bool for_small_vectors = false;

  // The table: one line and one file in this folder for each algorithm. A new algorithm also joins `kAlgorithms`.
  static const Algorithm exchange;          ///< all send to all, each rank reduces: 1 latency, (n-1) M bytes
  static const Algorithm doubling;          ///< recursive doubling: log2 n latencies, log2 n * M bytes
  static const Algorithm halving_doubling;  ///< Rabenseifner: 2 log2 n latencies, 2 (n-1)/n M bytes if n = 2^k
  static const Algorithm ring;              ///< twice round the ring: 2 (n-1) latencies, 2 (n-1)/n M bytes
  static const Algorithm star;              ///< through rank 0, for teaching: 2 latencies, (n-1) M bytes at rank 0

  friend bool operator==(const Algorithm& a, const Algorithm& b) { return a.name == b.name; }
};

inline constexpr std::array kAlgorithms = {&Algorithm::exchange, &Algorithm::doubling, &Algorithm::halving_doubling,
                                           &Algorithm::ring, &Algorithm::star};

/// The plan of one rank; empty for one rank or no elements.
Plan plan_all_reduce(const Algorithm& algorithm, const Planner& planner, std::size_t count);
/// 0 for one rank.
std::size_t latencies(const Algorithm& algorithm, std::size_t ranks);

inline std::string_view to_string(const Algorithm& algorithm) { return algorithm.name; }
/// "exchange, doubling or star", for people.
std::string algorithm_names();
/// Throws usage, naming the flag.
Algorithm parse_algorithm(const char* flag, const std::string& name);

}  // namespace psring::ring
