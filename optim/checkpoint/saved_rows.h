#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/rows/table_rows.h>

namespace psring::optim {

/// An array of a table in a checkpoint: words of 4 bytes of every record, from word `begin` of the record on.
struct RowArray {
  std::string name;
  std::size_t begin = 0;
  std::size_t words = 0;
};

/// Returns the arrays of a table, which together have all of a record: `keys` (hashed, u64), `counts` (updates and the
/// last update, u32), `values`, and a slot of optimizer state each.
std::vector<RowArray> row_arrays(std::size_t width, const RowRule& rule);

/// Describes a table for the manifest.
SavedTensor saved_table(const TableLayout& table, const RowRule& rule);

/// Adds the checkpoint's rows of these buckets. Any number of owners reads the rows that another number has written,
/// because a segment's rows are in the order of their hashed keys. Throws data, naming the file, if a record is damaged
/// or incomplete.
void read_rows(const Checkpoint& saved, const std::string& table, Range buckets, TableRows& rows);

/// Returns the hashed keys, occurrences and last updates of a table's rows, by ascending key.
std::vector<RowAge> saved_ages(const Checkpoint& saved, const std::string& table);

}  // namespace psring::optim
