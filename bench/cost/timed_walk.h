#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/bench/cost/timed_exchange.h>

namespace psring::bench {

/// Walks through the layers of a worker's step, as worker::Walk does, in virtual time: each call takes the time at
/// which it begins, and returns the time at which it ends. Between the passes of two layers the tensor group sums, if
/// there is one, and the worker waits for it.
class TimedWalk {
 public:
  /// `factor`: by which computing takes longer; `more_s`: time that is added to each pass of a layer.
  TimedWalk(const TimedJob& job, TimedExchange& exchange, double factor, double more_s);

  TimedWalk(const TimedWalk&) = delete;
  TimedWalk& operator=(const TimedWalk&) = delete;

  void begin_step() { exchange_.begin_step(); }
  /// The passes of a micro-batch.
  Moments forward(Moments now);
  Moments backward(bool last_micro, Moments now);
  /// Hands over the gradients of units with tensors that several stages hold, after these have summed them.
  void hand_over_shared(const Moments& now);
  Moments finish(const Moments& now) { return exchange_.finish(now); }
  /// A step of a worker that has the whole model.
  Moments step(Moments now);

 private:
  Moments forward_layer(std::size_t layer, Moments now);
  Moments backward_layer(std::size_t layer, bool last_micro, Moments now);
  Moments sum(std::span<const double> vectors, Moments now);
  bool is_shared(std::size_t unit) const;

  const TimedJob job_;
  TimedExchange& exchange_;
  const TimedGroup tensor_;
  const double factor_;
  const double more_s_;
};

}  // namespace psring::bench
