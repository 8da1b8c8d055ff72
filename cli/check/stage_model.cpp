#include <cmath>
#include <utility>

#include <psring/cli/check/stage_model.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

/// Values in [-1, 1), which f32 holds exactly.
StageValues random_values(std::size_t count, std::uint64_t seed, std::size_t number) {
  const CounterRng random({.seed = seed, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(number)});
  StageValues values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2 * random.uniform(i) - 1;
  return values;
}

StageValues targets(std::size_t micro_batch) { return random_values(kStageValues, 143, micro_batch); }

}  // namespace

StageValues stage_parameters(std::size_t stage) { return random_values(kStageParameters, 141, stage); }

StageValues stage_samples(std::size_t micro_batch) { return random_values(kStageValues, 142, micro_batch); }

StageValues stage_forward(const StageValues& parameters, const StageValues& input) {
  StageValues activation(kStageValues);
  for (std::size_t n = 0; n < kStageSamples; ++n)
    for (std::size_t j = 0; j < kStageWidth; ++j) {
      double sum = parameters[kStageWidth * kStageWidth + j];
      for (std::size_t i = 0; i < kStageWidth; ++i) sum += input[n * kStageWidth + i] * parameters[i * kStageWidth + j];
      activation[n * kStageWidth + j] = std::tanh(sum);
    }
  return activation;
}

double stage_loss(std::size_t micro_batch, const StageValues& activation) {
  const StageValues target = targets(micro_batch);
  double sum = 0;
  for (std::size_t i = 0; i < kStageValues; ++i) sum += (activation[i] - target[i]) * (activation[i] - target[i]) / 2;
  return sum / kStageSamples;
}

StageValues stage_loss_gradient(std::size_t micro_batch, const StageValues& activation) {
  StageValues gradient = targets(micro_batch);
  for (std::size_t i = 0; i < kStageValues; ++i) gradient[i] = (activation[i] - gradient[i]) / kStageSamples;
  return gradient;
}

StageGradients stage_backward(const StageValues& parameters, const StageValues& input,
                              const StageValues& activation_gradient) {
  const StageValues activation = stage_forward(parameters, input);
  StageGradients gradients{StageValues(kStageValues), StageValues(kStageParameters)};
  for (std::size_t n = 0; n < kStageSamples; ++n)
    for (std::size_t j = 0; j < kStageWidth; ++j) {
      const std::size_t at = n * kStageWidth + j;
      const double before = activation_gradient[at] * (1 - activation[at] * activation[at]);
      gradients.parameters[kStageWidth * kStageWidth + j] += before;
      for (std::size_t i = 0; i < kStageWidth; ++i) {
        gradients.parameters[i * kStageWidth + j] += input[n * kStageWidth + i] * before;
        gradients.input[n * kStageWidth + i] += parameters[i * kStageWidth + j] * before;
      }
    }
  return gradients;
}

PipelineReference run_pipeline(std::size_t stages, std::size_t micro_batches) {
  PipelineReference reference;
  for (auto* const values : {&reference.inputs, &reference.activation_gradients, &reference.gradients})
    values->assign(stages, std::vector<StageValues>(micro_batches));
  for (std::size_t m = 0; m < micro_batches; ++m) {
    StageValues values = stage_samples(m);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      reference.inputs[stage][m] = values;
      values = stage_forward(stage_parameters(stage), values);
    }
    values = stage_loss_gradient(m, values);
    for (std::size_t stage = stages; stage-- > 0;) {
      reference.activation_gradients[stage][m] = values;
      StageGradients gradients = stage_backward(stage_parameters(stage), reference.inputs[stage][m], values);
      reference.gradients[stage][m] = std::move(gradients.parameters);
      values = std::move(gradients.input);
    }
  }
  return reference;
}

}  // namespace psring::cli
