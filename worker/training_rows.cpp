// The rows of a training's tables: counted for predictions, and saved with the model.
#include <algorithm>
#include <utility>

#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/optim/norm.h>
#include <psring/optim/rows/row_figures.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/exchange/tables/row_cache.h>
#include <psring/worker/model/safetensors.h>
#include <psring/worker/tables/row_batches.h>
#include <psring/worker/training.h>

namespace psring::worker {

const KeyCounts& Training::key_counts() const {
  const JobOptions& job = setup_.job();
  const std::uint64_t last = next_.value_or(setup_.steps());
  if (key_counts_ && key_counts_->first == last) return key_counts_->second;
  std::vector<std::vector<optim::RowAge>> known;
  if (setup_.saved())
    for (const TableLayout& table : setup_.layout().tables)
      known.push_back(optim::saved_ages(*setup_.saved(), table.name));
  std::vector<optim::RowRules> rules;
  for (const TableLayout& table : setup_.layout().tables) rules.push_back(setup_.rows().rules->of(table.name).rows);
  const bool begun = last > plan_.run_first_step;
  const bool exact = job.table_lookahead > 0 && job.row_consistency() == "bsp";
  std::vector<std::size_t> cached;
  if (job.table_cache > 0)
    for (const TableLayout& table : setup_.layout().tables)
      cached.push_back(RowCache::rows_in(table, job.table_cache, RowCache::steps_of(job)));
  KeyCounts counts({.data = *setup_.data().train,
                    .sampler = sampler(),
                    .tables = key_fields_of(setup_.model().tables),
                    .workers = job.data_workers() * job.virtual_workers,
                    .owners = setup_.served_layout().owners,
                    .rules = std::move(rules),
                    .first = plan_.run_first_step,
                    .last = last,
                    .beyond = begun ? std::min<std::uint64_t>(job.table_lookahead, setup_.steps() - last) : 0,
                    .layouts = setup_.layout().tables,
                    .in_parts = exact,
                    .cached_rows = std::move(cached),
                    .cached_steps = RowCache::steps_of(job),
                    .known = std::move(known)});
  return key_counts_.emplace(last, std::move(counts)).second;
}

Json Training::table_figures() const {
  Json list = Json::array();
  const Tables* const tables = strategy_->abilities().tables;
  if (tables == nullptr) return list;
  const std::vector<optim::TablePart> own = tables->own_rows();
  for (TableId table = 0; table < setup_.layout().tables.size(); ++table) {
    const TrainedBatches trained = tables->trained(table);
    Json json = own.empty() ? Json{{"name", setup_.layout().tables[table].name}}
                            : optim::row_figures(*own[table].table, *own[table].rows);
    json["fused"] = setup_.model().tables[table].fuses();
    json["batches"] = trained.batches;
    json["lookups"] = trained.lookups;
    json["keys"] = trained.keys;
    json["most_keys"] = trained.most_keys;
    list.push_back(std::move(json));
  }
  return list;
}

/// Writes each table's keys, and their rows, in the order of the hashed keys. Returns `wrong`, or the name of the first
/// table with a value that is not finite.
std::optional<std::string> Training::save_rows(TensorWriter& writer, std::optional<std::string> wrong) {
  const std::vector<TableLayout>& layouts = setup_.layout().tables;
  for (TableId table = 0; table < layouts.size(); ++table) {
    Tables& tables = *strategy_->abilities().tables;
    const std::span<const std::uint64_t> keys = key_counts().keys(table);
    for (const std::uint64_t hashed : keys) {
      const std::uint64_t key = optim::unmix64(hashed);
      writer.append_bytes(std::as_bytes(std::span(&key, 1)));
    }
    std::vector<KeyBatch> batch(layouts.size(), KeyBatch{{}, {0}});
    for (std::size_t begin = 0; begin < keys.size(); begin += layouts[table].most_keys) {
      const auto part = keys.subspan(begin, std::min(layouts[table].most_keys, keys.size() - begin));
      batch[table].lookups.assign(part.begin(), part.end());
      tables.fetch(batch, Step{*next_}, 0, RowUse::read);
      for (TableId each = 0; each < layouts.size(); ++each) tables.acquire(each);  // the others have no keys
      const ConstMatrix rows = tables.view(table, {}).rows;
      if (!optim::all_finite(rows.span()) && !wrong) wrong = layouts[table].name;
      writer.append(rows.span());
    }
  }
  return wrong;
}

}  // namespace psring::worker
