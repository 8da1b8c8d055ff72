#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

/// Reads a table's rows one after the other, by ascending hashed key. Throws data as read_rows does.
class SavedRowStream {
 public:
  /// REQUIRES: saved and table outlive this; the checkpoint has the table.
  SavedRowStream(const Checkpoint& saved, const SavedTensor& table);
  SavedRowStream(const SavedRowStream&) = delete;
  SavedRowStream& operator=(const SavedRowStream&) = delete;
  ~SavedRowStream();

  /// Reads the next row; false after the last one.
  bool next();
  std::uint64_t hashed() const { return hashed_; }
  std::span<const float> values() const { return values_; }

 private:
  struct Part;

  const Checkpoint& saved_;
  const SavedTensor& table_;
  std::size_t places_ = 0;  ///< begun
  std::unique_ptr<Part> part_;
  std::uint64_t hashed_ = 0;
  std::vector<float> values_;
};

/// Returns the hashed keys, occurrences and last updates of a table's rows, by ascending key.
std::vector<RowAge> saved_ages(const Checkpoint& saved, const std::string& table);

}  // namespace psring::optim
