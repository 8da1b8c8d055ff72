#pragma once

#include <cstddef>
#include <iosfwd>

#include <psring/worker/model/model.h>

namespace psring::bench {

/// Rates of one compute thread, in GFLOP/s: medians over the rounds. `step` and `ceiling` are by the thread's
/// processor time, which other processes' load does not stretch; `wall` ones are by the clock, and fall behind where
/// the machine is shared or the step waits. On a loaded machine the clock favours the ceiling: a product alone often
/// fits between two preemptions, a step does not.
struct ComputeRates {
  double step = 0;     ///< forward, loss and backward of a batch, as the trainer calls them
  double ceiling = 0;  ///< oneDNN's on the step's own matrix products: their operations over the sum of their times
  double wall_step = 0;
  double wall_ceiling = 0;
  double spread = 0;  ///< of the step: (slowest - fastest) / median
  std::size_t rounds = 0;
  double ratio() const { return step / ceiling; }
  double wall_ratio() const { return wall_step / wall_ceiling; }
};

/// Measures a model's step and, in turn with it, the ceiling: each product alone, operands warm, by the fastest of
/// oneDNN's sgemm, its matmul on plain rows, and its matmul on operands that were packed in advance. Throws usage where
/// the model has no matrix products.
ComputeRates measure_compute(const worker::Model& model, std::size_t batch, std::size_t rounds = 11);

/// Prints them as a line.
void bench_compute(std::ostream& out, const worker::Model& model, std::size_t batch);

}  // namespace psring::bench
