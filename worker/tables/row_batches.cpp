#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/tables/row_batches.h>

namespace psring::worker {

std::vector<TableFields> key_fields_of(std::span<const TableSpec> tables) {
  std::vector<TableFields> fields;
  for (const TableSpec& table : tables) fields.push_back({table.features, table.shares_ids});
  return fields;
}

RowBatches::RowBatches(const Plan& plan, std::span<const TableSpec> specs, Tables& tables, const Dataset& data,
                       const Sampler& sampler)
    : plan_(plan), specs_(specs), tables_(tables), data_(data), ahead_(sampler) {}

std::span<const KeyBatch> RowBatches::keys_of(const Dataset& data, std::span<const std::uint32_t> samples) {
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
  return keys_;
}

void RowBatches::begin_step(std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker) {
  if (!tables_.begin(step)) {
    tables_.fetch(keys_of(data_, samples), step, virtual_worker, RowUse::train);
    next_ = step.index + 1;
  }
  last_ = std::min(step.index + 1 + plan_.job.table_lookahead, plan_.steps);
}

void RowBatches::look_ahead() {
  for (; next_ < last_; ++next_) {
    const std::uint64_t epoch = next_ / ahead_.batches();
    if (epoch_ahead_ != epoch) ahead_.begin_epoch(static_cast<std::uint32_t>(epoch));
    epoch_ahead_ = epoch;
    const auto samples = ahead_.batch(plan_.data_rank.value, next_ % ahead_.batches());
    tables_.fetch_ahead(keys_of(data_, samples), Step{next_});
  }
}

void RowBatches::read(const Dataset& data, std::span<const std::uint32_t> samples, Step step) {
  tables_.fetch(keys_of(data, samples), step, 0, RowUse::read);
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
