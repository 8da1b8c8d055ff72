#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/base/text/spec.h>
#include <psring/optim/optimizer.h>

namespace psring {

template <class T, class... Args>
class Registry;

namespace optim {

/// The optimizer of a table's rows. Only rows with a gradient are updated: a row without one keeps values and state,
/// and has no weight decay. Arithmetic is f32; coefficients are computed in f64 once per call. Like Optimizer, a rule
/// holds only hyperparameters.
class RowRule {
 public:
  /// Several rows, each where its record is, and their gradients, one after the other.
  struct Rows {
    std::span<float* const> values;    ///< of each row: [width], followed by its slots of state, [slot_width] each,
                                       ///< which are zero before the row's first update
    std::span<const float> gradients;  ///< [rows, width]
  };

  virtual ~RowRule() = default;
  virtual const char* name() const = 0;
  virtual std::size_t slots() const = 0;
  /// Floats of state of one row in each slot.
  virtual std::size_t slot_width(std::size_t width) const { return width; }
  virtual double default_lr() const = 0;
  /// Says how a lazy rule differs from the rule of the same name for dense parameters; "" if both are alike.
  virtual const char* difference() const { return ""; }
  /// `update.count`: the number of this update of the table, from 1.
  virtual void apply(const Update& update, std::size_t width, const Rows& rows) const = 0;

  std::size_t state_floats(std::size_t width) const { return slots() * slot_width(width); }
};

/// Registers the rules that --table-optimizer names. g is the mean gradient of a row over all workers, summed over the
/// row's occurrences in each batch:
///   sgd              w -= lr g (torch.optim.SGD with a coalesced sparse gradient)
///   adagrad          s += g²; w -= lr g / (sqrt(s) + eps) (torch.optim.Adagrad). Key: eps (1e-10)
///   rowwise-adagrad  one s for a row: s += mean(g²); w -= lr g / (sqrt(s) + eps) (FBGEMM's). The mean adds 8 lanes
///                    over the row, then the lanes in order. Key: eps (1e-8)
///   adam             m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) +
///                    eps), t the table's number of updates (torch.optim.SparseAdam). Keys: beta1 (0.9), beta2 (0.999),
///                    eps (1e-8)
///   ftrl             c = (sqrt(n + g²) - sqrt(n)) / lr; z += g - c w; n += g²; w = 0 if |z| <= l1, else
///                    -(z - sign(z) l1) / ((beta + sqrt(n)) / lr + l2) (McMahan et al., KDD 2013). Keys: beta (1), l1
///                    (0), l2 (0)
/// They throw usage, naming the flag, for another key, or a value out of range.
void register_builtin_row_rules(Registry<RowRule>& rules);

/// Makes one of these rules.
std::unique_ptr<RowRule> make_row_rule(const Spec& spec);

}  // namespace optim
}  // namespace psring
