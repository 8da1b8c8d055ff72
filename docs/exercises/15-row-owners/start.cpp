// Exercise 15: every lookup travels, to a server that does not own it. README.md has the text; psring check 15 marks
// this file.
#include <psring/cli/check/exercise.h>

using psring::exercise::Lookups;
using psring::exercise::RowPush;
using psring::exercise::RowTable;

void push_rows(const Lookups& batch, std::span<RowPush> servers) {
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    RowPush& push = servers[batch.keys[i] % servers.size()];
    push.keys.push_back(batch.keys[i]);
    const std::span<const float> row =
        batch.gradients.values.subspan(i * batch.gradients.columns, batch.gradients.columns);
    push.gradients.insert(push.gradients.end(), row.begin(), row.end());
  }
}

void update_rows(RowTable& table, std::span<const RowPush> workers) {
  for (const RowPush& push : workers)
    for (std::size_t i = 0; i < push.keys.size(); ++i) {
      const std::span<float> row = table.row(push.keys[i]);
      for (std::size_t k = 0; k < table.width(); ++k)
        row[k] -= table.learning_rate() * push.gradients[i * table.width() + k];
    }
}
