#include <psring/worker/tables/row_batches.h>

namespace psring::worker {

std::vector<TableFields> key_fields_of(std::span<const TableSpec> tables) {
  std::vector<TableFields> fields;
  for (const TableSpec& table : tables) fields.push_back({table.features, table.shares_ids});
  return fields;
}

void RowBatches::fetch(const Dataset& data, std::span<const std::uint32_t> samples, Step step,
                       std::size_t virtual_worker, RowUse use) {
  KeyReader& reader = readers_.try_emplace(&data, data, key_fields_of(specs_)).first->second;
  keys_.resize(specs_.size());
  for (KeyBatch& keys : keys_) {
    keys.lookups.clear();
    keys.offsets.assign(1, 0);
  }
  for (const std::uint32_t sample : samples)
    reader.read(
        sample, [&](std::size_t table, std::uint64_t key) { keys_[table].lookups.push_back(key); },
        [&](std::size_t table) {
          keys_[table].offsets.push_back(static_cast<std::uint32_t>(keys_[table].lookups.size()));
        });
  tables_.fetch(keys_, step, virtual_worker, use);
}

void RowBatches::show(Range samples, Network& network) {
  views_.clear();
  for (TableId table = 0; table < specs_.size(); ++table) {
    const std::size_t bags = specs_[table].features.size();
    views_.push_back(tables_.view(table, {samples.begin * bags, samples.end * bags}));
  }
  network.set_tables(views_);
}

}  // namespace psring::worker
