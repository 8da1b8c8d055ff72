#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/optim/rows/record_memory.h>
#include <psring/optim/rows/row_counters.h>
#include <psring/optim/rows/row_index.h>
#include <psring/optim/rows/row_rule.h>
#include <psring/optim/rows/row_rules.h>

namespace psring::optim {

/// Gradients of rows that one worker handed over: hashed keys, ascending, and a row of `width` values for each.
struct RowGradients {
  std::span<const std::uint64_t> keys;
  ConstElements gradients;                     ///< [keys, width], or a code for each key if the table has a codec
  std::span<const std::uint32_t> counts = {};  ///< occurrences of each key in the worker's batch; empty: one each
  std::span<const std::uint32_t> places = {};  ///< as `read` wrote them for these keys; empty: they are not known
};

/// Returns the bytes of a key in a list, or on the wire: its occurrences are with it if a rule counts them.
constexpr std::size_t key_bytes(bool counts) { return sizeof(std::uint64_t) + (counts ? sizeof(std::uint32_t) : 0); }

/// The steps of a worker whose keys an owner keeps at a time, because their gradients come without keys.
constexpr std::size_t kept_steps(const TableLayout& table) { return std::max<std::size_t>(2, table.lookahead + 1); }
/// Returns the bytes that an owner books for these keys of every worker, and for the places of their rows. `exact`:
/// pulls ahead are answered in two parts, for which it keeps the keys that a step trains, and those of the second part.
constexpr std::size_t key_list_bytes(const TableLayout& table, std::size_t workers, bool counts, bool exact) {
  const std::size_t parts = exact && table.lookahead > 0 ? 2 * sizeof(std::uint64_t) : 0;
  return workers * table.most_keys * (kept_steps(table) * (key_bytes(counts) + sizeof(std::uint32_t)) + parts);
}
/// Returns the bytes of the answers to a worker's batch, at most. See net::kAhead for what comes beside the rows.
inline std::size_t answer_bytes(const TableLayout& table, bool exact) {
  return table.most_keys * (table.row_bytes() + (exact && table.lookahead > 0 ? sizeof(std::uint64_t) : 0));
}

/// Writes the initial values of a row: a function of seed, table, key and element alone.
void initial_row(const Init& init, std::uint64_t seed, std::size_t table, std::uint64_t key, std::span<float> out);

/// The rows of one table that one owner has. No protocol. Belongs to one thread.
class TableRows {
 public:
  /// The constants of a table.
  struct Options {
    std::size_t number = 0;  ///< of the table, which initial values depend on
    std::size_t width = 0;
    Init init = {};
    std::uint64_t seed = 0;
    const RowRule* rule = nullptr;
    RowRules rules = {};
    const Codec* codec = nullptr;  ///< decodes the gradient of each row; null: gradients are values
    std::size_t most_bytes = 0;    ///< of records; more is refused
  };
  /// The sizes of a record, and the memory that a table always books as gradients.
  static RecordMemory::Sizes record_sizes(std::size_t width, const RowRule& rule);
  static std::size_t scratch_bytes(std::size_t width);

  /// REQUIRES: rule, codec and ledger outlive this.
  TableRows(const Options& options, MemoryLedger& ledger);

  const Options& options() const { return options_; }
  /// Rows that were trained.
  std::size_t size() const { return records_.size(); }
  /// Writes the keys' rows into out [keys, width], narrowed to its type. A key without a row has its initial values: a
  /// read changes nothing. `places`, if given, gets the place of each row, which `update` then need not search for.
  void read(std::span<const std::uint64_t> keys, Elements out, std::span<std::uint32_t> places = {}) const;
  /// Writes the keys' rows as they were before the update that filled `old`. REQUIRES: the keys ascend, and are of
  /// buckets that were not updated since.
  void read_before(const OldRows& old, std::span<const std::uint64_t> keys, Elements out) const;
  /// Makes one update of the table's rows, or of some buckets' rows: every key of any worker gets the sum of the
  /// workers' gradients, in their order, times `factor`, and the rule is applied to its row, which begins to exist.
  /// `update.count` counts the updates from 1. After an update for which RowRules::due holds, rows leave: the keys then
  /// have their initial values again. `old`: gets the rows that the update changes, as they are before it; null: nobody
  /// reads them again. REQUIRES: keys ascend in each list; if rows leave, each update is of all buckets; with `old`
  /// every key gets a row at once, and keeps it.
  void update(const Update& update, std::span<const std::vector<RowGradients>> workers, float factor,
              OldRows* old = nullptr);
  /// Gives the keys' rows these values [keys, width], and the state of rows that were never updated. REQUIRES: all keys
  /// are admitted, and no rows leave.
  void assign(std::span<const std::uint64_t> keys, ConstElements values);
  /// Returns the keys from `first` to `last` that have rows: the least `most` of them, ascending. The first call orders
  /// all rows, 4 bytes a row, for those that follow, up to the one that finds no key after its own. So a page of keys
  /// costs what it has, unless keys get rows between two pages.
  std::vector<std::uint64_t> list(std::uint64_t first, std::uint64_t last, std::size_t most);

  /// The numbers of all rows, in the order of their hashed keys: 4 bytes a row, which are not booked.
  std::vector<std::uint32_t> in_order() const;
  const RecordMemory& records() const { return records_; }
  /// The bytes of a row's record, without what is behind them up to the next.
  std::size_t record_bytes() const;
  /// Adds a row, or takes the place of the key's row: a whole record of a table of this width and rule.
  void insert(std::span<const std::byte> record);

 private:
  static constexpr std::size_t kAtOnce = 64;

  void find_rows();
  void admit(std::uint64_t updates);
  std::uint32_t make_row(std::uint64_t key);
  void apply(const Update& update, OldRows* old);
  void sweep(std::uint64_t updates);

  const Options options_;
  MemoryLedger& ledger_;
  RowIndex index_;
  RecordMemory records_;
  std::unique_ptr<RowCounters> counters_;  ///< null: every key gets a row at once
  // The gradients of up to kAtOnce rows, summed in the first-level cache, and one of another worker, decoded.
  Buffer scratch_;
  std::span<float> gradients_;
  std::span<float> other_;
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> counts_;  ///< occurrences
  std::vector<std::uint32_t> rows_;
  Buffer order_;  ///< the numbers of all rows in the order of their keys, while they are listed
};

}  // namespace psring::optim
