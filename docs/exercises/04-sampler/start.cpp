// Exercise 04: on one host this is right. README.md has the text; psring check 04 marks this file.
#include <psring/cli/check/exercise.h>

using psring::exercise::Place;

void samples_of(const Place& place, std::span<const std::uint32_t> order, std::vector<std::uint32_t>& samples) {
  const std::size_t each = (order.size() + place.local_workers - 1) / place.local_workers;
  for (std::size_t k = 0; k < each; ++k)
    samples.push_back(order[(k * place.local_workers + place.local_rank) % order.size()]);
}
