#pragma once

#include <span>

#include <psring/common/base/elements.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

/// A range that is updated, in the types that its owner keeps. Equal sizes; `out` may be the parameters themselves.
struct MixedRange {
  ConstElements parameters;
  ConstElements gradient;
  /// The parameters in f32, where the owner keeps such a copy of narrower ones: updates smaller than a narrow
  /// parameter's last digit add up there (Micikevicius et al., ICLR 2018, section 3.1). Empty: there is none.
  std::span<float> master;
  Optimizer::State state;
  Elements out;
};

/// The rule's update in f32; the parameters after it are rounded once. A layerwise rule's direction is written to `out`
/// instead: REQUIRES that it is f32 then, and no master is touched.
void apply(const Optimizer& rule, const Update& update, const MixedRange& range);

/// add_square_sum (norm.h) of elements of any type.
void add_square_sum(ConstElements values, ExactSum& sum);

}  // namespace psring::optim
