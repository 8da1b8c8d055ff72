#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// The options of `psring-bench train`.
struct TrainingOptions {
  std::string model = "mlp:784-512-512-10";  ///< model of the step
  std::size_t batch = 128;
  std::size_t steps = 150;   ///< per round
  std::size_t warm_up = 20;  ///< steps per round that are not counted
  std::size_t rounds = 7;
  std::string transport = "shm";
  std::string json;  ///< file, or ""
};

/// Measures a step of `ps` with one worker and one server, two processes, and a step of `single`, in turn. Both train
/// on the same samples. Throws check_failed unless their losses are equal in every step, bit for bit.
void bench_step(const TrainingOptions& options);

/// Measures a model's forward and backward, compared with oneDNN's rate on the same matrix products.
struct ComputeCase {
  std::string model;
  std::size_t batch = 0;
};
void bench_models(const std::vector<ComputeCase>& cases, std::size_t rounds, const std::string& json);

}  // namespace psring::bench
