#pragma once

#include <span>

#include <psring/common/base/elements.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

/// A range to update, in the types that its owner stores. All sizes are equal; `out` may be the parameters themselves.
struct MixedRange {
  ConstElements parameters;
  ConstElements gradient;
  /// Master weights: f32 copies of narrower parameters, in which updates smaller than a parameter's last digit
  /// accumulate (Micikevicius et al., ICLR 2018, section 3.1). Empty if the owner keeps none.
  std::span<float> master;
  Optimizer::State state;
  Elements out;
};

/// Computes the rule's update in f32, and rounds the new parameters once. A layerwise rule writes the direction to
/// `out` instead, and does not change `master`; REQUIRES: `out` is f32 then.
void apply(const Optimizer& rule, const Update& update, const MixedRange& range);

/// add_square_sum (norm.h) for elements of any type.
void add_square_sum(ConstElements values, ExactSum& sum);

}  // namespace psring::optim
