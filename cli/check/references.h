#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::cli {

/// The values of a reference, in double precision; stored row after row, as a student's code has them.
using Values = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A matrix of values in [-1, 1), which f32 holds exactly: another one for each seed and number.
Values random_values(Eigen::Index rows, Eigen::Index columns, std::uint64_t seed, std::size_t number);

std::vector<float> floats(const Values& values);
/// Returns the values as a matrix of the same shape. REQUIRES: `shape` has as many values.
Values like(const Values& shape, std::span<const float> values);

/// Returns whether all values are those expected, up to `tolerance`; false for a NaN.
bool all_near(std::span<const float> values, const Values& expected, double tolerance);

/// Two layers, y = relu(x A) B + c, in one process and in double precision: what the ranks of exercise 13 have to
/// compute together.
struct Pair {
  Values x, a, b, c;
  Values dy;  ///< the gradient of y
};

Pair random_pair(std::size_t batch, std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint64_t seed);

struct PairResult {
  Values hidden, y, dx, da, db, dc;
};

/// Runs forward and backward of some of the hidden columns: a rank's summands of y (without c) and of dx, and its
/// columns of hidden and da, its rows of db. dc is whole. `relu` false leaves relu out, in both passes.
PairResult run_part(const Pair& pair, Range columns, bool relu = true);

/// Runs the whole pair: y with c.
PairResult run_whole(const Pair& pair, bool relu = true);

/// A rank's columns of A, and its rows of B.
Values columns_of(const Values& matrix, Range columns);
Values rows_of(const Values& matrix, Range rows);

/// The model of exercise 14: equal stages, activation = tanh(input W + bias), in double precision. A stage's parameters
/// are W, and the bias as the last row.
inline constexpr std::size_t kStageSamples = 2;  ///< of a micro-batch
inline constexpr std::size_t kStageWidth = 3;
inline constexpr std::size_t kStageValues = kStageSamples * kStageWidth;  ///< of an activation
inline constexpr std::size_t kStageParameters = kStageWidth * (kStageWidth + 1);

Values stage_parameters(std::size_t stage);
Values stage_samples(std::size_t micro_batch);

Values stage_forward(const Values& parameters, const Values& input);

/// The loss of a micro-batch, mean over samples of |activation - target|^2 / 2, and its gradient.
double stage_loss(std::size_t micro_batch, const Values& activation);
Values stage_loss_gradient(std::size_t micro_batch, const Values& activation);

struct StageGradients {
  Values input;
  Values parameters;
};
StageGradients stage_backward(const Values& parameters, const Values& input, const Values& activation_gradient);

/// The right values of a pass over all stages, by stage and micro-batch.
struct PipelineReference {
  using ByPass = std::vector<std::vector<Values>>;
  ByPass inputs;
  ByPass activation_gradients;
  ByPass gradients;  ///< of the parameters, for the loss of the micro-batch alone
};
PipelineReference run_pipeline(std::size_t stages, std::size_t micro_batches);

}  // namespace psring::cli
