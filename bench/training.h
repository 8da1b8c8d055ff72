#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace psring::bench {

/// What `psring-bench train` is asked for.
struct TrainingOptions {
  std::string model = "mlp:784-512-512-10";  ///< of the step
  std::size_t batch = 128;
  std::size_t steps = 150;   ///< a round
  std::size_t warm_up = 20;  ///< steps of a round that are not counted
  std::size_t rounds = 7;
  std::string transport = "shm";
  std::string json;  ///< file, or ""
};

/// A step of `ps` with one worker and one server, two processes, beside a step of `single`, in turn. Both see the
/// same samples and must have the same loss in every step, bit for bit, else it throws check_failed.
void bench_step(const TrainingOptions& options);

/// A model's forward and backward beside oneDNN's own rate on its matrix products.
struct ComputeCase {
  std::string model;
  std::size_t batch = 0;
};
void bench_models(const std::vector<ComputeCase>& cases, std::size_t rounds, const std::string& json);

}  // namespace psring::bench
