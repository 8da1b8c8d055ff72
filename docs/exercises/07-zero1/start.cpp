// Exercise 07: every worker updates everything. README.md has the text; psring check 07 marks this file.
#include <psring/cli/check/exercise.h>

using psring::exercise::Worker;

constexpr float kMomentum = 0.5F;

void train_step(Worker& worker) {
  const float n = static_cast<float>(worker.size());
  worker.forward();
  for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer);
  const std::span<float> gradients = worker.gradients(0, worker.layers());
  const std::span<float> parameters = worker.parameters(0, worker.layers());
  worker.wait(worker.start_all_reduce(gradients));
  const std::span<float> momentum = worker.state(0, gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    momentum[i] = kMomentum * momentum[i] + gradients[i] / n;
    parameters[i] -= worker.learning_rate() * momentum[i];
  }
}
