// The rank among all workers, not the rank on the host.
#include <psring/cli/check/exercise.h>

using psring::exercise::Place;

void samples_of(const Place& place, std::span<const std::uint32_t> order, std::vector<std::uint32_t>& samples) {
  const std::size_t each = (order.size() + place.workers - 1) / place.workers;
  for (std::size_t k = 0; k < each; ++k) samples.push_back(order[(k * place.workers + place.rank) % order.size()]);
}
