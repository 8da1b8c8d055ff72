#pragma once

#include <memory>

#include <psring/worker/model/model.h>

namespace psring::worker {

/// A row's loss is -log softmax(y)[target], in nats. `correct` counts the rows whose first maximum is the target.
/// Throws data if a target is not a valid class. Gradient: scale * (softmax(y) - onehot(target)).
std::unique_ptr<Loss> make_cross_entropy();

/// A row's loss is the mean of y^2 over its columns; targets are not read. Gradient: scale * 2 y / columns.
std::unique_ptr<Loss> make_mean_square();

/// A row's loss is the mean of (y - target)^2 over its columns, as in PyTorch's MSELoss; the targets are real numbers,
/// Model::target_cols of them a row. Gradient: scale * 2 (y - target) / columns.
std::unique_ptr<Loss> make_squared_error();

/// A row's loss is the binary cross-entropy of sigmoid(y) and the target, which is 0 or 1, in nats; y has one column.
/// `correct` counts the rows where y > 0 is the target. Throws data if a target is another class. Gradient: scale *
/// (sigmoid(y) - target).
std::unique_ptr<Loss> make_binary_cross_entropy();

/// The loss of negative sampling (Mikolov et al., arXiv:1310.4546): a row's first logit belongs to class 1, the others
/// to class 0, and its loss is the sum of their binary cross-entropies, in nats; targets are not read. Gradient: scale
/// * (sigmoid(y) - class).
std::unique_ptr<Loss> make_negative_sampling();

}  // namespace psring::worker
