#include <algorithm>
#include <utility>

#include <psring/common/base/consistency.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/proc/job.h>
#include <psring/worker/exchange/tables/row_cache.h>

namespace psring::worker {

std::size_t RowCache::steps_of(const JobOptions& job) {
  return parse_consistency(job.row_consistency()).bound.value_or(0);
}

std::size_t RowCache::rows_in(const TableLayout& table, std::size_t bytes, std::size_t steps) {
  const std::size_t room = bytes / (sizeof(std::uint64_t) + table.row_bytes());
  return steps > room / std::max<std::size_t>(table.most_keys, 1) ? room : std::min(room, steps * table.most_keys);
}

void RowCache::predict(const TableLayout& table, std::size_t rows, Prediction& sum) {
  sum.worker_memory[Category::communication] += rows * sizeof(std::uint64_t) + (rows > 0 ? table.most_keys : 0);
  sum.worker_memory[Category::parameters] += rows * table.row_bytes();
}

RowCache::RowCache(const TableLayout& table, std::size_t rows, std::size_t steps, MemoryLedger& ledger)
    : row_bytes_(table.row_bytes()),
      capacity_(rows),
      steps_(steps),
      keys_(rows * sizeof(std::uint64_t), Category::communication, ledger),
      rows_(rows * row_bytes_, Category::parameters, ledger),
      here_(table.most_keys, Category::communication, ledger) {}

/// Drops the rows before a place.
void RowCache::drop_to(std::uint64_t first) {
  while (!brought_.empty() && brought_.front().end <= first) brought_.pop_front();
  if (!brought_.empty()) brought_.front().begin = std::max(brought_.front().begin, first);
}

std::span<const std::uint8_t> RowCache::take(std::uint64_t step, std::span<const std::uint64_t> keys,
                                             std::span<std::byte> rows) {
  const std::span<std::uint8_t> here = here_.as<std::uint8_t>().first(keys.size());
  while (!brought_.empty() && brought_.front().step + steps_ < step) brought_.pop_front();
  std::ranges::fill(here, std::uint8_t{0});
  for (const Brought& each : brought_) {
    std::uint64_t place = each.begin;
    for (std::size_t i = 0; i < keys.size() && place < each.end; ++i) {
      while (place < each.end && key(place) < keys[i]) ++place;
      if (place == each.end || key(place) != keys[i]) continue;
      std::ranges::copy(row(place), rows.begin() + static_cast<std::ptrdiff_t>(i * row_bytes_));
      here[i] = 1;
    }
  }
  return here;
}

void RowCache::keep(std::uint64_t step, std::span<const std::uint64_t> keys, std::span<const std::byte> rows) {
  const std::span<std::uint8_t> here = here_.as<std::uint8_t>().first(keys.size());
  const std::uint64_t begin = brought_.empty() ? 0 : brought_.back().end;
  std::uint64_t place = begin;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (std::exchange(here[i], std::uint8_t{1}) != 0) continue;
    key(place) = keys[i];
    std::ranges::copy(rows.subspan(i * row_bytes_, row_bytes_), row(place).begin());
    ++place;
  }
  if (place == begin) return;
  brought_.push_back({step, begin, place});
  if (place > capacity_) drop_to(place - capacity_);
}

}  // namespace psring::worker
