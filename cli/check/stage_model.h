#pragma once

#include <cstddef>
#include <vector>

namespace psring::cli {

/// The model of exercise 14: equal stages, activation = tanh(input W + bias), in double precision. Matrices are stored
/// row after row; a stage's parameters are W, then the bias.
inline constexpr std::size_t kStageSamples = 2;  ///< of a micro-batch
inline constexpr std::size_t kStageWidth = 3;
inline constexpr std::size_t kStageValues = kStageSamples * kStageWidth;  ///< of an activation
inline constexpr std::size_t kStageParameters = kStageWidth * (kStageWidth + 1);

using StageValues = std::vector<double>;

StageValues stage_parameters(std::size_t stage);
StageValues stage_samples(std::size_t micro_batch);

StageValues stage_forward(const StageValues& parameters, const StageValues& input);

/// The loss of a micro-batch, mean over samples of |activation - target|^2 / 2, and its gradient.
double stage_loss(std::size_t micro_batch, const StageValues& activation);
StageValues stage_loss_gradient(std::size_t micro_batch, const StageValues& activation);

struct StageGradients {
  StageValues input;
  StageValues parameters;
};
StageGradients stage_backward(const StageValues& parameters, const StageValues& input,
                              const StageValues& activation_gradient);

/// The right values of a pass over all stages, by stage and micro-batch.
struct PipelineReference {
  template <class T>
  using ByPass = std::vector<std::vector<T>>;
  ByPass<StageValues> inputs;
  ByPass<StageValues> activation_gradients;
  ByPass<StageValues> gradients;  ///< of the parameters, for the loss of the micro-batch alone
};
PipelineReference run_pipeline(std::size_t stages, std::size_t micro_batches);

}  // namespace psring::cli
