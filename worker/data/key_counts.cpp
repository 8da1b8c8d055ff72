#include <algorithm>
#include <utility>

#include <psring/optim/rows/row_hash.h>
#include <psring/worker/data/key_counts.h>

namespace psring::worker {
namespace {

void sort_unique(std::vector<std::uint64_t>& keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

/// The first key at or after the beginning of an owner's buckets.
auto first_of(std::span<const std::uint64_t> keys, std::size_t owners, std::size_t owner) {
  return owner == owners ? keys.end()
                         : std::ranges::lower_bound(keys, table_buckets(owners, owner).begin, {}, optim::bucket_of);
}

}  // namespace

KeyCounts::KeyCounts(Run run) : owners_(run.owners), keys_(run.tables.size()) {
  KeyReader reader(run.data, run.tables);
  std::vector<std::vector<std::uint64_t>> batch(run.tables.size());
  std::vector<std::size_t> sorted(run.tables.size());  // keys of keys_ that are in order and different
  pulled_.assign(run.tables.size(), std::vector<std::uint64_t>(run.workers * owners_));
  const std::uint64_t batches = run.sampler.batches();
  for (std::uint64_t step = run.first; step < run.last; ++step) {
    if (step == run.first || step % batches == 0) run.sampler.begin_epoch(static_cast<std::uint32_t>(step / batches));
    for (std::size_t worker = 0; worker < run.workers; ++worker) {
      for (auto& keys : batch) keys.clear();
      for (const std::uint32_t sample : run.sampler.batch(worker, step % batches))
        reader.read(
            sample, [&](std::size_t table, std::uint64_t key) { batch[table].push_back(key); },
            [](std::size_t /*table*/) {});
      for (std::size_t table = 0; table < batch.size(); ++table) {
        std::vector<std::uint64_t>& keys = batch[table];
        sort_unique(keys);
        for (std::size_t owner = 0; owner < owners_; ++owner)
          pulled_[table][worker * owners_ + owner] +=
              static_cast<std::uint64_t>(first_of(keys, owners_, owner + 1) - first_of(keys, owners_, owner));
        std::vector<std::uint64_t>& all = keys_[table];
        all.insert(all.end(), keys.begin(), keys.end());
        if (all.size() < 2 * sorted[table] + 65536) continue;
        sort_unique(all);
        sorted[table] = all.size();
      }
    }
  }
  for (auto& keys : keys_) sort_unique(keys);
}

std::uint64_t KeyCounts::pulled(std::size_t table, std::size_t worker) const {
  std::uint64_t sum = 0;
  for (std::size_t owner = 0; owner < owners_; ++owner) sum += pulled(table, worker, owner);
  return sum;
}

std::span<const std::uint64_t> KeyCounts::keys(std::size_t table, std::size_t owner) const {
  const std::span<const std::uint64_t> all = keys_[table];
  return {first_of(all, owners_, owner), first_of(all, owners_, owner + 1)};
}

std::array<std::size_t, optim::RowIndex::kMaps> keys_by_map(std::span<const std::uint64_t> keys) {
  std::array<std::size_t, optim::RowIndex::kMaps> counts{};
  for (const std::uint64_t key : keys) ++counts[optim::RowIndex::map_of(key)];
  return counts;
}

}  // namespace psring::worker
