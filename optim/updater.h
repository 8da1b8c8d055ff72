#pragma once

#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/norm.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

// The phases of an update around `Optimizer::apply`. The owners of ranges exchange messages between the phases. Sums
// are exact: merged in any order, from any partition at multiples of kCut, they give every owner the same bits as a
// single owner of everything.
//
//   clipping    each owner: add_square_sum (norm.h) of its gradients of all units into one ExactSum
//               -- all-reduce the sums --    clip_scale gives Update::gradient_scale
//   apply       each owner: Optimizer::apply; a layerwise rule writes the direction
//   layerwise   each owner: layerwise_sums of each unit
//               -- all-reduce the sums --    trust_ratios, then scale_layerwise

/// Returns min(1, max_norm / (norm + 1e-6)) / loss_scale, like PyTorch's clip_grad_norm_; norm is the L2 norm of all
/// gradients after unscaling. NaN if the sum is NaN because a gradient was not finite. Throws usage, naming
/// --clip-norm, unless max_norm > 0.
/// `loss_scale`: the factor that the gradients contain.
float clip_scale(const ExactSum& square_sum, double max_norm, float loss_scale = 1);

/// Returns the tensor's range in its unit, without padding.
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

/// Returns the sums over the parts of the unit's tensors that lie in `range`, one entry per tensor, in order.
/// `parameters` and `direction` hold only the range. REQUIRES: range.begin is a multiple of kCut.
std::vector<TensorSums> layerwise_sums(std::span<const TensorLayout> tensors, Range range,
                                       std::span<const float> parameters, std::span<const float> direction);

/// Adds another owner's sums of the same unit. Throws bug if the number of tensors differs.
void merge(std::vector<TensorSums>& into, std::span<const TensorSums> other);

/// Returns ||w|| / ||direction|| for each tensor; 1 if either norm is 0; NaN if a sum is NaN.
std::vector<float> trust_ratios(std::span<const TensorSums> sums);

/// out = parameters - lr * ratio * direction, with the ratio of each tensor. `out` may be exactly `parameters` or
/// `direction`, but must not overlap them otherwise. Padding is copied from the parameters.
void scale_layerwise(float lr, std::span<const TensorLayout> tensors, Range range, std::span<const float> ratios,
                     std::span<const float> parameters, std::span<const float> direction, std::span<float> out);

}  // namespace psring::optim
