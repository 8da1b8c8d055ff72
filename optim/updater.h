#pragma once

#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/norm.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

// What owners of ranges share around `Optimizer::apply`, as phases, so that a message exchange fits between
// any two of them. Sums are exact: merged in any order, from any cut at multiples of kCut, they give every
// owner the bits that one owner of everything gets.
//
//   clipping    each owner: add_square_sum (norm.h) of its gradients of all units into one ExactSum
//               -- merge all owners' --    clip_scale gives Update::gradient_scale
//   apply       each owner: Optimizer::apply; a layerwise rule writes the direction
//   layerwise   each owner: layerwise_sums of each unit
//               -- merge all owners' --    trust_ratios, then scale_layerwise

/// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_, where norm is the root of the sum of
/// squares of all gradients. NaN where the sum is: a gradient was not finite. Throws usage, naming
/// --clip-norm, unless max_norm > 0.
/// `loss_scale`: what gradients were multiplied by before; the result divides by it, too.
float clip_scale(const ExactSum& square_sum, double max_norm, float loss_scale = 1);

/// Where the tensor lies in its unit, without padding.
inline Range elements_of(const TensorLayout& tensor) { return {tensor.offset, tensor.offset + tensor.spec.elements()}; }

/// The sums of squares of one tensor's parameters and of its direction.
struct TensorSums {
  ExactSum parameters;
  ExactSum direction;

  void merge(const TensorSums& other) {
    parameters.merge(other.parameters);
    direction.merge(other.direction);
  }
};

/// The sums over what of each of the unit's tensors lies in `range`; one entry a tensor, in their order.
/// `parameters` and `direction` hold the range alone. REQUIRES: range.begin is a multiple of kCut.
std::vector<TensorSums> layerwise_sums(std::span<const TensorLayout> tensors, Range range,
                                       std::span<const float> parameters, std::span<const float> direction);

/// Adds another owner's sums of the same unit. Throws bug where the number of tensors differs.
void merge(std::vector<TensorSums>& into, std::span<const TensorSums> other);

/// ||w|| / ||direction|| for each tensor; 1 where either norm is 0; NaN where a sum is.
std::vector<float> trust_ratios(std::span<const TensorSums> sums);

/// out = parameters - lr * ratio * direction, with each tensor's own ratio. `out` may be `parameters` or
/// `direction` itself, but not overlap them otherwise. Padding is copied from the parameters.
void scale_layerwise(float lr, std::span<const TensorLayout> tensors, Range range, std::span<const float> ratios,
                     std::span<const float> parameters, std::span<const float> direction, std::span<float> out);

/// All phases but clipping, for who owns the whole unit. A layerwise rule leaves its direction in
/// `gradient`. `out` may be `parameters` itself.
void update_unit(const Optimizer& optimizer, const Update& update, const UnitLayout& unit,
                 std::span<const float> parameters, std::span<float> gradient, Optimizer::State state,
                 std::span<float> out);

}  // namespace psring::optim
