// Both go round the ring: in each round a rank sends one part to its right, and receives one from its left.
#include <psring/cli/check/exercise.h>

using psring::exercise::Link;

namespace {

std::span<float> part(const Link& link, std::span<float> values, std::size_t number) {
  const std::size_t each = values.size() / link.size();
  return values.subspan(number % link.size() * each, each);
}

}  // namespace

void reduce_scatter(Link& link, std::span<float> values) {
  const std::size_t n = link.size();
  const std::size_t rank = link.rank();
  std::vector<float> arrived(values.size() / n);
  for (std::size_t round = 1; round < n; ++round) {
    link.send((rank + 1) % n, part(link, values, rank + n - round));
    link.recv((rank + n - 1) % n, arrived);
    const std::span<float> sum = part(link, values, rank + 2 * n - round - 1);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += arrived[i];
  }
}

void all_gather(Link& link, std::span<float> values) {
  const std::size_t n = link.size();
  const std::size_t rank = link.rank();
  for (std::size_t round = 0; round + 1 < n; ++round) {
    link.send((rank + 1) % n, part(link, values, rank + n - round));
    link.recv((rank + n - 1) % n, part(link, values, rank + n - round - 1));
  }
}
