#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/base/text/spec.h>

namespace psring::optim {

/// The learning rate as a function of the step, counted from 0. Immutable.
class Schedule {
 public:
  virtual ~Schedule() = default;
  /// Returns the factor of the base rate at this step.
  virtual double factor(std::uint64_t step) const = 0;

  float lr(double base, std::uint64_t step) const { return static_cast<float>(base * factor(step)); }
};

/// The schedule of a Spec over a run of `total_steps`:
///   constant[:warmup=N]                1
///   step:every=N[,gamma=G]             G^floor(step / N); G = 0.1 (PyTorch's StepLR)
///   cosine[:warmup=N][,min=F]          F + (1 - F) (1 + cos(pi p)) / 2 with p = (step - N) / (total - N),
///                                      from 1 after the warm-up to F at `total_steps`; F = 0
/// Warm-up is linear: (step + 1) / N while step < N; none by default.
/// Throws usage, naming the Spec's flag, for an unknown name or key, or for a value out of range.
std::unique_ptr<Schedule> make_schedule(const Spec& spec, std::uint64_t total_steps);

}  // namespace psring::optim
