#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <psring/optim/formula.h>

namespace psring::optim {

/// What one update is told besides its data.
struct Update {
  std::uint64_t count = 1;   ///< which update of this range it is, from 1 (Adam's t)
  float lr = 0;              ///< what the schedule gives for it
  float gradient_scale = 1;  ///< the gradient is multiplied by this first (clipping)
};

/// An update rule over any range of a flat buffer: elementwise, so the same bits come out however the
/// buffer is cut. It holds hyperparameters only; parameters and state belong to the range's owner.
/// Rules whose step is scaled for each tensor (LAMB) are `layerwise`: `apply` then writes the direction,
/// and the owner scales it (see updater.h) once the tensor's norms are known.
class Optimizer {
 public:
  static constexpr std::size_t kMaxSlots = 2;
  /// One span for each state slot, each as long as the parameters; zero before the first update.
  struct State {
    std::span<float> slot[kMaxSlots];
  };

  virtual ~Optimizer() = default;
  /// Floats of state for one parameter: K / 4 in the memory formulas.
  virtual std::size_t slots() const = 0;
  virtual bool layerwise() const { return false; }
  /// The learning rate where none is given: PyTorch's default, but for plain SGD, which has none there.
  virtual double default_lr() const { return 1e-3; }
  /// What it was made with, by the names of JobOptions: run.json says what a run used, defaults too.
  virtual std::map<std::string, double> hyperparameters() const { return {}; }
  /// out = the parameters after the update (layerwise: the direction). `out` may be `parameters` or
  /// `gradient` itself, but not overlap them otherwise, nor the state.
  virtual void apply(const Update& update, std::span<const float> parameters, std::span<const float> gradient,
                     State state, std::span<float> out) const = 0;
  /// The same as a GPU computes it; nothing: it runs on the host alone.
  virtual std::optional<Formula> formula(const Update& /*update*/) const { return std::nullopt; }
};

}  // namespace psring::optim
