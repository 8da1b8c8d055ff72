#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/base/memory_ledger.h>
#include <psring/optim/rows/record_memory.h>
#include <psring/optim/rows/row_index.h>
#include <psring/optim/rows/row_rules.h>

namespace psring::optim {

/// Counts the occurrences of keys that have no row yet (RowRules::admit): 16 bytes a key, and its place in an index. A
/// key that gets its row keeps its counter until the next sweep after the row has left.
class RowCounters {
 public:
  static constexpr RecordMemory::Sizes kSizes{};

  /// REQUIRES: the ledger outlives it.
  RowCounters(const RowRules& rules, std::size_t most_bytes, MemoryLedger& ledger)
      : rules_(rules), index_(ledger), records_(kSizes, most_bytes, ledger) {}

  /// Adds occurrences of a key without a row; returns all of them if the key gets a row now, else 0.
  std::uint32_t add(std::uint64_t key, std::uint32_t occurrences, std::uint64_t updates);
  /// Drops the counters of rows that have left, and those that RowRules::ttl makes too old.
  void sweep(std::uint64_t updates, const RowIndex& rows);

 private:
  const RowRules rules_;
  RowIndex index_;
  RecordMemory records_;  ///< `updates` counts occurrences; `last` is 0 once the key has a row
};

}  // namespace psring::optim
