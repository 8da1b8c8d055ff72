#pragma once

#include <cstddef>

#include <psring/worker/model/model.h>

namespace psring::bench {

/// Rates of one compute thread, in GFLOP/s: medians over the rounds. On a quiet machine the elapsed time (`wall`)
/// counts. `step` and `ceiling` use the thread's processor time, which other processes do not change. On a shared
/// machine, elapsed time favours the ceiling: a single product often fits between two preemptions, but a step does not.
struct ComputeRates {
  double step = 0;     ///< forward, loss and backward of a batch, as the trainer calls them
  double ceiling = 0;  ///< oneDNN on the step's own matrix products: sum of operations over sum of times
  double wall_step = 0;
  double wall_ceiling = 0;
  double spread = 0;  ///< of the step: (slowest - fastest) / median
  std::size_t rounds = 0;
  double samples_per_second = 0;  ///< of the step, by elapsed time
  double ratio() const { return step / ceiling; }
  double wall_ratio() const { return wall_step / wall_ceiling; }
};

/// Measures a model's step and, alternating with it, the ceiling: each product alone with warm operands, by the fastest
/// of oneDNN's sgemm, its matmul on plain rows, and its matmul on operands packed in advance. Throws usage if the model
/// has no matrix products.
ComputeRates measure_compute(const worker::Model& model, std::size_t batch, std::size_t rounds = 11);

}  // namespace psring::bench
