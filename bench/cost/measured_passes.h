#pragma once

#include <cstddef>

#include <psring/bench/cost/measure.h>
#include <psring/bench/cost/workload.h>

namespace psring::bench {

/// The times of the passes of one model's layers, as this machine computes them while it does nothing else.
class MeasuredPasses {
 public:
  /// Measures steps of the whole model in a micro-batch of this size, on `threads` threads. REQUIRES: the host has the
  /// memory for the model.
  MeasuredPasses(const worker::Model& model, std::size_t batch, DType type, std::size_t threads);

  /// Returns the time of a pass: of the measured pass of the same kind and size. If none has that size, because a layer
  /// is divided or a micro-batch has one sample more, the nearest one is scaled by FLOPs, or by elements if it has
  /// none. Throws usage if no layer of that kind was measured.
  double seconds(const LayerPass& pass) const;
  /// The time of both passes of all layers.
  double step_s() const;

 private:
  Measured passes_;
};

}  // namespace psring::bench
