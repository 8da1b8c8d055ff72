// The owner of a range keeps its state, and in mixed precision its master weights.
#include <psring/cli/check/exercise.h>

using psring::exercise::MemoryBytes;
using psring::exercise::MemoryQuestion;

void memory_of(const MemoryQuestion& job, MemoryBytes& bytes) {
  const std::uint64_t size = job.mixed ? 2 : 4;
  const std::uint64_t master = job.mixed ? 4 : 0;
  const std::uint64_t state = job.adam ? 8 : 0;
  bytes.parameters = size * job.elements;
  bytes.gradients = size * job.elements;
  bytes.optimizer = (master + state) * job.elements;
  if (job.stage >= 1) bytes.optimizer /= job.workers;
  if (job.stage >= 2) bytes.gradients /= job.workers;
  if (job.stage >= 3) bytes.parameters /= job.workers;
}
