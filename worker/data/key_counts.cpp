#include <algorithm>
#include <deque>
#include <iterator>
#include <tuple>
#include <unordered_map>

#include <psring/optim/rows/occurrences.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/tables/table_protocol.h>

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

std::size_t owner_of(std::uint64_t key, std::size_t owners) {
  std::size_t owner = 0;
  while (table_buckets(owners, owner).end <= optim::bucket_of(key)) ++owner;
  return owner;
}

/// The keys whose rows a worker's cache has, by the step that brought them.
class CachedKeys {
 public:
  /// Returns the keys of a step's batch whose rows are here, and takes the others.
  std::vector<std::uint64_t> take(std::uint64_t step, std::span<const std::uint64_t> keys, std::size_t most,
                                  std::size_t steps) {
    const auto leave = [&] {
      steps_.erase(order_.front());
      order_.pop_front();
    };
    while (!order_.empty() && steps_.at(order_.front()) + steps < step) leave();
    std::vector<std::uint64_t> here;
    for (const std::uint64_t key : keys)
      if (steps_.contains(key)) here.push_back(key);
    for (const std::uint64_t key : keys)
      if (steps_.try_emplace(key, step).second) order_.push_back(key);
    while (order_.size() > most) leave();
    return here;
  }

 private:
  std::deque<std::uint64_t> order_;                         ///< as they came
  std::unordered_map<std::uint64_t, std::uint64_t> steps_;  ///< by key
};

/// The keys of a table that all workers train in a step: the rows of other keys may come before its update.
class TrainedKeys {
 public:
  void add(std::span<const std::uint64_t> keys) { next_.insert(next_.end(), keys.begin(), keys.end()); }
  void end_step() {
    keys_.swap(next_);
    next_.clear();
    sort_unique(keys_);
  }
  /// Returns the keys that the last step did not train.
  std::vector<std::uint64_t> others(std::span<const std::uint64_t> keys) const {
    std::vector<std::uint64_t> others;
    std::ranges::set_difference(keys, keys_, std::back_inserter(others));
    return others;
  }

 private:
  std::vector<std::uint64_t> keys_;  ///< of the last step
  std::vector<std::uint64_t> next_;
};

/// Takes out the rows that leave in a sweep: by counting, for each row, how many of its group stay behind it in age.
void sweep(const optim::RowRules& rules, std::uint64_t updates, auto& rows) {
  constexpr std::size_t kGroups = kBuckets / kCut;
  const auto group_of = [](const auto& row) { return optim::bucket_of(row.key) / kCut; };
  std::ranges::sort(rows, [&](const auto& a, const auto& b) {  // in a group, the last to leave come first
    return std::tuple(group_of(a), b.update, b.key) < std::tuple(group_of(b), a.update, a.key);
  });
  std::size_t group = kGroups;
  std::size_t before = 0;  // rows of the group that leave later
  std::erase_if(rows, [&](const auto& row) {
    const bool old = rules.ttl > 0 && updates - row.update >= rules.ttl;
    if (row.count < rules.admit) return old;  // a counter
    if (group_of(row) != group) before = 0;
    group = group_of(row);
    const std::size_t place = before++;
    const auto beyond = [&](std::size_t all) { return place * kGroups + group >= all; };
    return (old && beyond(rules.keep)) || (rules.most > 0 && !rules.by_count && beyond(rules.most));
  });
  if (rules.by_count) {
    std::ranges::sort(rows, [&](const auto& a, const auto& b) {
      return std::tuple(group_of(a), b.count, b.update, b.key) < std::tuple(group_of(b), a.count, a.update, a.key);
    });
    group = kGroups;
    std::erase_if(rows, [&](const auto& row) {
      if (row.count < rules.admit) return false;
      if (group_of(row) != group) before = 0;
      group = group_of(row);
      return before++ * kGroups + group >= rules.most;
    });
  }
  std::ranges::sort(rows, {}, [](const auto& row) { return row.key; });
}

}  // namespace

/// Sorts by key, keeps each key's last update, and adds up its occurrences.
void KeyCounts::keep_last(std::vector<Trained>& trained) {
  std::ranges::sort(
      trained, [](const Trained& a, const Trained& b) { return a.key != b.key ? a.key < b.key : a.update > b.update; });
  std::size_t kept = 0;
  for (const Trained& each : trained) {
    if (kept > 0 && trained[kept - 1].key == each.key)
      trained[kept - 1].count = optim::add_occurrences(trained[kept - 1].count, each.count);
    else
      trained[kept++] = each;
  }
  trained.resize(kept);
}

void KeyCounts::note_most(std::size_t table, const optim::RowRules& rules, const std::vector<Trained>& keys) {
  std::vector<std::uint64_t> rows;
  std::vector<std::uint64_t> counters;
  for (const Trained& key : keys) {
    if (key.count >= rules.admit) rows.push_back(key.key);
    if (rules.admits()) counters.push_back(key.key);
  }
  for (std::size_t owner = 0; owner < owners_; ++owner) {
    const auto own = [&](std::span<const std::uint64_t> all) {
      return std::span(first_of(all, owners_, owner), first_of(all, owners_, owner + 1));
    };
    Most& most = most_[table][owner];
    most.rows = std::max(most.rows, own(rows).size());
    most.counters = std::max(most.counters, own(counters).size());
    most.index_bytes = std::max(most.index_bytes, optim::RowIndex::booked_bytes(keys_by_map(own(rows))) +
                                                      optim::RowIndex::booked_bytes(keys_by_map(own(counters))));
  }
}

KeyCounts::KeyCounts(Run run)
    : owners_(run.owners),
      steps_(run.last - run.first),
      keys_(run.tables.size()),
      most_(run.tables.size(), std::vector<Most>(run.owners)) {
  KeyReader reader(run.data, run.tables);
  run.rules.resize(run.tables.size());
  std::vector<std::vector<std::uint64_t>> batch(run.tables.size());
  std::vector<std::vector<Trained>> rows(run.tables.size());
  std::vector<std::size_t> sorted(run.tables.size());  // of rows, that are in order and different
  for (std::size_t table = 0; table < run.known.size(); ++table)
    for (const optim::RowAge& row : run.known[table]) rows[table].push_back({row.key, row.last, row.count});
  moved_.assign(run.tables.size(), std::vector<Moved>(run.workers * owners_));
  std::vector<CachedKeys> cached(run.cached_rows.size() * run.workers);
  std::vector<TrainedKeys> trained(run.in_parts ? run.tables.size() : 0);
  const std::uint64_t batches = run.sampler.batches();
  for (std::uint64_t step = run.first; step < run.last + run.beyond; ++step) {
    if (step == run.first || step % batches == 0) run.sampler.begin_epoch(static_cast<std::uint32_t>(step / batches));
    for (std::size_t worker = 0; worker < run.workers; ++worker) {
      for (auto& keys : batch) keys.clear();
      for (const std::uint32_t sample : run.sampler.batch(worker, step % batches))
        reader.read(
            sample, [&](std::size_t table, std::uint64_t key) { batch[table].push_back(key); },
            [](std::size_t /*table*/) {});
      for (std::size_t table = 0; table < batch.size(); ++table) {
        std::vector<std::uint64_t>& keys = batch[table];
        std::vector<Trained>& all = rows[table];
        const auto note = [&](std::uint64_t key) { all.push_back({key, static_cast<std::uint32_t>(step + 1), 1}); };
        const bool trains = step < run.last;
        const bool counts = run.rules[table].counts();
        if (trains && counts) std::ranges::for_each(keys, note);
        sort_unique(keys);
        if (trains && !counts) std::ranges::for_each(keys, note);
        Moved* const moved = &moved_[table][worker * owners_];
        const auto count_at = [&](std::size_t owner, std::span<const std::uint64_t> all_keys) {
          return static_cast<std::uint64_t>(first_of(all_keys, owners_, owner + 1) -
                                            first_of(all_keys, owners_, owner));
        };
        for (std::size_t owner = 0; owner < owners_; ++owner) {
          const std::uint64_t count = count_at(owner, keys);
          moved[owner].trained += trains ? count : 0;
          moved[owner].asked += count;
        }
        if (run.in_parts) {
          if (step > run.first && !run.rules[table].due(step)) {
            const std::vector<std::uint64_t> early = trained[table].others(keys);
            for (std::size_t owner = 0; owner < owners_; ++owner) moved[owner].early += count_at(owner, early);
          }
          trained[table].add(keys);
        }
        if (!run.layouts.empty())
          for (const RowFrame& frame : cut_rows(run.layouts[table], owners_, keys, optim::key_bytes(counts))) {
            ++moved[frame.owner].frames;
            if (step > run.first && run.in_parts) moved[frame.owner].mark_bytes += net::mark_bytes(frame.rows.size());
            if (!cached.empty()) moved[frame.owner].cached_bytes += net::mark_bytes(frame.rows.size());
          }
        if (!cached.empty()) {
          CachedKeys& own = cached[table * run.workers + worker];
          for (const std::uint64_t key : own.take(step, keys, run.cached_rows[table], run.cached_steps))
            ++moved[owner_of(key, owners_)].cached;
        }
        if (all.size() < 2 * sorted[table] + 65536) continue;
        keep_last(all);
        sorted[table] = all.size();
      }
    }
    std::ranges::for_each(trained, &TrainedKeys::end_step);
    if (step >= run.last) continue;
    for (std::size_t table = 0; table < rows.size(); ++table) {
      if (!run.rules[table].due(step + 1)) continue;
      keep_last(rows[table]);
      note_most(table, run.rules[table], rows[table]);
      sweep(run.rules[table], step + 1, rows[table]);
      sorted[table] = rows[table].size();
    }
  }
  for (std::size_t table = 0; table < rows.size(); ++table) {
    keep_last(rows[table]);
    note_most(table, run.rules[table], rows[table]);
    for (const Trained& row : rows[table])
      if (row.count >= run.rules[table].admit) keys_[table].push_back(row.key);
  }
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
