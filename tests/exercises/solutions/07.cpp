// Gradients are reduced to their owners, each owner updates its part, and the parameters are gathered.
#include <psring/cli/check/exercise.h>

using psring::exercise::Worker;

constexpr float kMomentum = 0.5F;

void train_step(Worker& worker) {
  const float n = static_cast<float>(worker.size());
  worker.forward();
  for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer);
  const std::span<float> gradients = worker.gradients(0, worker.layers());
  const std::span<float> parameters = worker.parameters(0, worker.layers());
  worker.wait(worker.start_reduce_scatter(gradients));
  const std::size_t each = gradients.size() / worker.size();
  const std::span<float> momentum = worker.state(0, each);
  for (std::size_t i = 0; i < each; ++i) {
    const std::size_t own = worker.rank() * each + i;
    momentum[i] = kMomentum * momentum[i] + gradients[own] / n;
    parameters[own] -= worker.learning_rate() * momentum[i];
  }
  worker.wait(worker.start_all_gather(parameters));
}
