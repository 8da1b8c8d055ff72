#pragma once

#include <cstddef>
#include <string>

namespace psring::bench {

/// The options of `psring-bench train --only ring`.
struct RingTrainingOptions {
  std::string model;
  std::size_t batch = 128;        ///< of `single`
  std::size_t worker_batch = 64;  ///< of each worker
  std::size_t workers = 2;
  std::string strategy = "ddp";
  std::size_t steps = 150;   ///< per round
  std::size_t warm_up = 20;  ///< steps per round that are not counted
  std::size_t rounds = 7;
  std::string json;  ///< file, or ""
};

/// Measures a step of workers that share memory, one process each, compared with a step of the same processes without
/// their exchange, and with a step of `single`, in turn: samples per second, and the cost of the exchange.
void bench_ring_training(const RingTrainingOptions& options);

/// A worker process of the benchmark. Rank 0 is the benchmark itself.
struct TrainingRank {
  RingTrainingOptions options;
  std::size_t rank = 0;
  std::string address;  ///< rank 0's address for sharing memory
  std::string key_file;
};
int run_training_rank(const TrainingRank& rank);

}  // namespace psring::bench
