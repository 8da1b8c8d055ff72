#include <span>
#include <vector>

#include <psring/optim/rows/occurrences.h>
#include <psring/optim/rows/row_counters.h>

namespace psring::optim {

std::uint32_t RowCounters::add(std::uint64_t key, std::uint32_t occurrences, std::uint64_t updates) {
  std::uint32_t record = RowIndex::kNoRow;
  index_.find(std::span(&key, 1), std::span(&record, 1));
  if (record == RowIndex::kNoRow) {
    record = records_.add();
    records_.header(record).key = key;
    index_.insert(key, record);
  }
  RecordHeader& header = records_.header(record);
  header.updates = add_occurrences(header.updates, occurrences);
  header.last = static_cast<std::uint32_t>(updates);
  if (header.updates < rules_.admit) return 0;
  header.last = 0;
  return header.updates;
}

void RowCounters::sweep(std::uint64_t updates, const RowIndex& rows) {
  std::vector<std::uint64_t> left;
  for (std::uint32_t record = 0; record < records_.used(); ++record) {
    if (records_.is_free(record)) continue;
    const RecordHeader& header = records_.header(record);
    bool leaves = rules_.ttl > 0 && updates - header.last >= rules_.ttl;
    if (header.last == 0) {
      std::uint32_t row = RowIndex::kNoRow;
      rows.find(std::span(&header.key, 1), std::span(&row, 1));
      leaves = row == RowIndex::kNoRow;
    }
    if (!leaves) continue;
    left.push_back(header.key);
    records_.remove(record);
  }
  index_.erase(left);
}

}  // namespace psring::optim
