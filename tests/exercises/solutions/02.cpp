// One all-reduce for each layer, each waited for at once.
#include <psring/cli/check/exercise.h>

using psring::exercise::Worker;

void train_step(Worker& worker) {
  const float n = static_cast<float>(worker.size());
  worker.forward();
  for (std::size_t layer = worker.layers(); layer-- > 0;) worker.backward(layer);
  for (std::size_t layer = worker.layers(); layer-- > 0;) {
    const std::span<float> gradients = worker.gradients(layer, layer + 1);
    worker.wait(worker.start_all_reduce(gradients));
    const std::span<float> parameters = worker.parameters(layer, layer + 1);
    for (std::size_t i = 0; i < gradients.size(); ++i) parameters[i] -= worker.learning_rate() * gradients[i] / n;
  }
}
