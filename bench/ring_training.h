#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// What `psring-bench train --only ring` is asked for.
struct RingTrainingOptions {
  std::string model;
  std::size_t batch = 128;        ///< of `single`
  std::size_t worker_batch = 64;  ///< of each worker
  std::size_t workers = 2;
  std::string strategy = "ddp";
  std::size_t steps = 150;   ///< a round
  std::size_t warm_up = 20;  ///< steps of a round that are not counted
  std::size_t rounds = 7;
  std::string json;  ///< file, or ""
};

/// A step of workers that share memory, each a process, beside a step of the same processes with their exchange off,
/// and beside one of `single`, in turn: samples per second, and what the exchange costs.
void bench_ring_training(const RingTrainingOptions& options);

/// A worker process of it, but for rank 0, which is the benchmark itself.
struct TrainingRank {
  RingTrainingOptions options;
  std::size_t rank = 0;
  std::string address;  ///< where rank 0 shares memory
  std::string key_file;
};
int run_training_rank(const TrainingRank& rank);

}  // namespace psring::bench
