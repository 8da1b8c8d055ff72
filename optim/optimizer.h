#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include <psring/optim/formula.h>

namespace psring::optim {

/// The scalars of one update.
struct Update {
  std::uint64_t count = 1;   ///< number of this update of the range, from 1 (Adam's t)
  float lr = 0;              ///< learning rate from the schedule
  float gradient_scale = 1;  ///< factor of the gradient, applied first (clipping)
};

/// An update rule for any range of a flat buffer. Rules are elementwise, so that every partition gives the same bits.
/// An optimizer holds only hyperparameters; parameters and state belong to the owner of the range. `layerwise` rules
/// (LAMB) scale the step of each tensor: `apply` then writes the direction, and the owner scales it (see updater.h)
/// once the tensor's norms are known.
class Optimizer {
 public:
  static constexpr std::size_t kMaxSlots = 2;
  /// The state: one span per slot, each as long as the parameters; zero before the first update.
  struct State {
    std::span<float> slot[kMaxSlots];
  };

  virtual ~Optimizer() = default;
  /// Number of state vectors: values of state per parameter.
  virtual std::size_t slots() const = 0;
  /// Bits of a stored value of state: 32, or 8 (block_codes.h). `apply` always sees f32.
  virtual unsigned state_bits() const { return 32; }
  virtual bool layerwise() const { return false; }
  /// Default learning rate: PyTorch's default, except for plain SGD, which has none in PyTorch.
  virtual double default_lr() const { return 1e-3; }
  /// Returns the hyperparameters, including defaults, by the names of JobOptions. run.json lists them.
  virtual std::map<std::string, double> hyperparameters() const { return {}; }
  /// out = the parameters after the update (layerwise: the direction). `out` may be exactly `parameters` or `gradient`,
  /// but must not overlap them otherwise, nor the state.
  virtual void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient,
                     State state, std::span<float> out) const = 0;
  /// Returns the same update as a formula for GPUs; nothing if the rule runs only on the host.
  virtual std::optional<Formula> formula(const Update& /*update*/) const { return std::nullopt; }
};

}  // namespace psring::optim
