#pragma once

#include <cstddef>
#include <span>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Layer normalisation over the columns of each row: y = (x - mean) / sqrt(variance + 1e-5) * weight + bias (Ba, Kiros,
/// Hinton, arXiv:1607.06450). The variance is the mean square of x - mean, computed in a separate pass, so that a large
/// mean costs no precision. Sums run in sixteen lanes, which are added as a tree.

/// Floats saved for backward: the mean and 1 / sqrt(variance + eps) of each row.
constexpr std::size_t layer_norm_saved(std::size_t rows) { return 2 * rows; }
constexpr std::size_t layer_norm_scratch(std::size_t cols) { return 2 * cols; }

/// Writes y and `saved` (layer_norm_saved(rows) floats). `y` may be `x`.
void layer_norm(ConstMatrix x, std::span<const float> weight, std::span<const float> bias, std::span<float> saved,
                Matrix y);

/// Recomputes y from the saved statistics, which is cheaper than saving y.
void layer_norm_again(ConstMatrix x, std::span<const float> weight, std::span<const float> bias,
                      std::span<const float> saved, Matrix y);

/// dx = residual + the gradient with respect to x. residual.data may be null (residual 0). dx.data may be null (then
/// only the parameters' gradients are written). The parameters' gradients may be unwanted. `dx` may be `dy`, but not
/// the residual.
/// scratch: layer_norm_scratch(cols).
void layer_norm_backward(ConstMatrix x, std::span<const float> weight, std::span<const float> saved, ConstMatrix dy,
                         ConstMatrix residual, Matrix dx, const Gradient& weight_gradient,
                         const Gradient& bias_gradient, std::span<float> scratch);

}  // namespace psring::worker
