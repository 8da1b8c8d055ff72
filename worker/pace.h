#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/rng.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/job.h>

namespace psring::worker {

/// Parses --compute: `model`, or `sleep:50ms` for the duration of a step's forward and backward. Returns nullopt for
/// real computation. Throws usage.
std::optional<Nanoseconds> parse_compute(const std::string& text);

/// The pace of a worker's computation: its own, or the pace that --compute sleep and --fault slow and jitter set.
/// Waiting takes no processor from others. A factor below 1 (jitter) shortens only sleeps.
class Pace {
 public:
  /// `layer_passes`: the passes of layers in a step, forward and backward, over all micro-batches.
  Pace(const JobOptions& job, std::size_t rank, const Clock& clock, std::size_t layer_passes);

  /// Returns whether a sleep replaces computing (--compute sleep): then there are no values, and gradients are zeros.
  bool stands_in() const { return step_.has_value(); }
  void begin_step(std::uint64_t step);

  /// Runs a layer's pass: `compute`, unless a sleep replaces it, and the time that the fault adds.
  template <class Compute>
  void pass(Compute&& compute) {
    if (!stands_in() && factor_ == 1) return compute();
    const Moment start = clock_.now();
    if (!stands_in()) compute();
    const Nanoseconds took = stands_in() ? *step_ / static_cast<std::int64_t>(layer_passes_) : clock_.now() - start;
    clock_.sleep_until(start + Nanoseconds(static_cast<std::int64_t>(static_cast<double>(took.count()) * factor_)));
  }

 private:
  const Clock& clock_;
  const std::optional<Nanoseconds> step_;
  const std::size_t layer_passes_;
  const CounterRng rng_;
  double slow_ = 1;
  double jitter_ = 0;
  double factor_ = 1;  ///< of the step under way
};

}  // namespace psring::worker
