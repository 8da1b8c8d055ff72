// 1f1b: stage s runs P - s forward passes, then one backward and one forward in turn.
#include <psring/cli/check/exercise.h>

using psring::exercise::Stage;

namespace {

void forward(Stage& stage, std::size_t m) {
  const std::span<float> input = stage.input(m);
  if (stage.stage() > 0) stage.recv(stage.stage() - 1, input);
  const std::span<const float> activation = stage.forward(m);
  if (stage.stage() + 1 < stage.stages()) stage.send(stage.stage() + 1, activation);
}

void backward(Stage& stage, std::size_t m) {
  std::vector<float> received(stage.width());
  std::span<const float> gradient = received;
  if (stage.stage() + 1 < stage.stages())
    stage.recv(stage.stage() + 1, received);
  else
    gradient = stage.loss_gradient(m);
  const std::span<const float> input_gradient = stage.backward(m, gradient);
  if (stage.stage() > 0) stage.send(stage.stage() - 1, input_gradient);
  const std::span<const float> own = stage.micro_gradients();
  const std::span<float> sum = stage.gradients();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i] / static_cast<float>(stage.micro_batches());
}

}  // namespace

void pipeline_step(Stage& stage) {
  const std::size_t ahead = stage.stages() - stage.stage();
  for (std::size_t m = 0; m < stage.micro_batches(); ++m) {
    if (m >= ahead) backward(stage, m - ahead);
    forward(stage, m);
  }
  const std::size_t left = stage.micro_batches() < ahead ? stage.micro_batches() : ahead;
  for (std::size_t m = stage.micro_batches() - left; m < stage.micro_batches(); ++m) backward(stage, m);
}
