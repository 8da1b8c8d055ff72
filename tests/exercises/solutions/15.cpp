// Different keys in order, each with the sum of its lookups; at the server a mean over all workers.
#include <map>
#include <vector>

#include <psring/cli/check/exercise.h>

using psring::exercise::Lookups;
using psring::exercise::RowPush;
using psring::exercise::RowTable;

void push_rows(const Lookups& batch, std::span<RowPush> servers) {
  const std::size_t width = batch.gradients.columns;
  std::map<std::uint64_t, std::vector<float>> sums;
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    std::vector<float>& sum = sums[batch.keys[i]];
    sum.resize(width);
    for (std::size_t k = 0; k < width; ++k) sum[k] += batch.gradients.at(i, k);
  }
  for (const auto& [key, sum] : sums) {
    const std::size_t bucket = key >> 44;  // of 2^20
    RowPush& push = servers[bucket * servers.size() >> 20];
    push.keys.push_back(key);
    push.gradients.insert(push.gradients.end(), sum.begin(), sum.end());
  }
}

void update_rows(RowTable& table, std::span<const RowPush> workers) {
  const auto n = static_cast<float>(workers.size());
  const std::size_t width = table.width();
  for (const RowPush& push : workers)
    for (std::size_t i = 0; i < push.keys.size(); ++i) {
      const std::span<float> row = table.row(push.keys[i]);
      for (std::size_t k = 0; k < width; ++k) row[k] -= table.learning_rate() * push.gradients[i * width + k] / n;
    }
}
