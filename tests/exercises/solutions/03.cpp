// A bucket starts when it has 6000 elements, while backward goes on; the waits come after backward.
#include <psring/cli/check/exercise.h>

using psring::exercise::Operation;
using psring::exercise::Worker;

struct Bucket {
  std::size_t first;
  std::size_t last;
  Operation operation;
};

void train_step(Worker& worker) {
  const float n = static_cast<float>(worker.size());
  std::vector<Bucket> buckets;
  worker.forward();
  std::size_t last = worker.layers();
  for (std::size_t layer = worker.layers(); layer-- > 0;) {
    worker.backward(layer);
    const std::span<float> bucket = worker.gradients(layer, last);
    if (bucket.size() < 6000 && layer > 0) continue;
    buckets.push_back({layer, last, worker.start_all_reduce(bucket)});
    last = layer;
  }
  for (const Bucket& bucket : buckets) {
    worker.wait(bucket.operation);
    const std::span<float> gradients = worker.gradients(bucket.first, bucket.last);
    const std::span<float> parameters = worker.parameters(bucket.first, bucket.last);
    for (std::size_t i = 0; i < gradients.size(); ++i) parameters[i] -= worker.learning_rate() * gradients[i] / n;
  }
}
