// Exercise 06: three mistakes from lecture notes. README.md has the text; psring check 06 marks this file.
#include <psring/cli/check/exercise.h>

using psring::exercise::MemoryBytes;
using psring::exercise::MemoryQuestion;

void memory_of(const MemoryQuestion& job, MemoryBytes& bytes) {
  const std::uint64_t size = job.mixed ? 2 : 4;
  bytes.parameters = size * job.elements;
  bytes.gradients = size * job.elements;
  bytes.optimizer = (job.adam ? 8 : 4) * job.elements;
  if (job.stage >= 1) bytes.optimizer *= job.workers;
  if (job.stage >= 2) bytes.gradients /= job.workers;
  if (job.stage >= 3) bytes.parameters /= 2 * job.workers;
}
