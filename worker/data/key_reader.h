#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// The key fields of a table, as TableSpec has them.
struct TableFields {
  Range fields;
  bool shares_ids = false;

  bool fuses() const { return fields.size() > 1 && !shares_ids; }
};

/// Reads the keys of samples, and hashes them, table by table. Belongs to one thread.
class KeyReader {
 public:
  /// `tables`: the key fields of each table. Throws data if the data set's keys are more than `most` of a field allow.
  /// REQUIRES: the data set outlives the reader.
  KeyReader(const Dataset& data, std::vector<TableFields> tables);

  /// The most keys of one sample in a table.
  std::size_t most_keys(std::size_t table) const { return most_[table]; }
  /// Calls take(table, hashed key) for each key of a sample, field by field, and end_bag(table) after each field's last
  /// key. Throws data, naming the field, for a sample with too many keys, or an
  /// id of more than 56 bits in a table of several fields.
  void read(std::size_t sample, auto&& take, auto&& end_bag) {
    read_keys(sample);
    std::size_t next = 0;
    for (std::size_t field = 0; field < fields_.size(); ++field)
      for (std::uint32_t i = 0; i <= counts_[field]; ++i)
        i < counts_[field] ? take(table_of_[field], hashed(sample, field, keys_[next++])) : end_bag(table_of_[field]);
  }

 private:
  void read_keys(std::size_t sample);
  std::uint64_t hashed(std::size_t sample, std::size_t field, std::uint64_t id) const;

  const Dataset& data_;
  const std::vector<TableFields> tables_;
  const std::vector<KeyField> fields_;
  std::vector<std::size_t> table_of_;  ///< by field
  std::vector<std::size_t> most_;      ///< by table
  std::vector<std::uint64_t> keys_;    ///< of one sample
  std::vector<std::uint32_t> counts_;
};

}  // namespace psring::worker
