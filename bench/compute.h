#pragma once

#include <cstddef>

#include <psring/worker/model/model.h>

namespace psring::bench {

/// Rates of one compute thread, in GFLOP/s: medians over the rounds. The clock's (`wall`) are what counts on a quiet
/// machine. `step` and `ceiling` are by the thread's processor time, which other processes' load does not stretch:
/// on a shared machine the clock favours the ceiling, as a product alone often fits between two preemptions and a
/// step does not.
struct ComputeRates {
  double step = 0;     ///< forward, loss and backward of a batch, as the trainer calls them
  double ceiling = 0;  ///< oneDNN's on the step's own matrix products: their operations over the sum of their times
  double wall_step = 0;
  double wall_ceiling = 0;
  double spread = 0;  ///< of the step: (slowest - fastest) / median
  std::size_t rounds = 0;
  double samples_per_second = 0;  ///< of the step, by the clock
  double ratio() const { return step / ceiling; }
  double wall_ratio() const { return wall_step / wall_ceiling; }
};

/// Measures a model's step and, in turn with it, the ceiling: each product alone, operands warm, by the fastest of
/// oneDNN's sgemm, its matmul on plain rows, and its matmul on operands that were packed in
/// advance. Throws usage where the model has no matrix products.
ComputeRates measure_compute(const worker::Model& model, std::size_t batch, std::size_t rounds = 11);

}  // namespace psring::bench
