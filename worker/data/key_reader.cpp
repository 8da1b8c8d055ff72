#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/data/key_reader.h>

namespace psring::worker {

KeyReader::KeyReader(const Dataset& data, std::vector<TableFields> tables)
    : data_(data), tables_(std::move(tables)), fields_(data.key_fields()), counts_(fields_.size()) {
  table_of_.resize(fields_.size());
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    most_.push_back(0);
    const Range fields = tables_[table].fields;
    check(fields.end <= fields_.size(), "a table of key fields that the data does not have");
    check(!tables_[table].fuses() || fields.size() <= std::size_t{1} << (64 - optim::kFeatureShift),
          "a table of {} key fields, whose numbers a key has no room for", fields.size());
    for (std::size_t field = fields.begin; field < fields.end; ++field) {
      table_of_[field] = table;
      most_.back() += fields_[field].most;
    }
  }
}

void KeyReader::read_keys(std::size_t sample) {
  keys_.clear();
  data_.read_keys(sample, keys_, counts_);
  std::size_t all = 0;
  for (std::size_t field = 0; field < fields_.size(); ++field) {
    all += counts_[field];
    if (counts_[field] > fields_[field].most)
      fail(ErrorKind::data, "sample {}: {} keys in field '{}', at most {} expected", sample, counts_[field],
           fields_[field].name, fields_[field].most);
  }
  check(all == keys_.size(), "{} keys of a sample, {} counted", keys_.size(), all);
}

std::uint64_t KeyReader::hashed(std::size_t sample, std::size_t field, std::uint64_t id) const {
  const TableFields& table = tables_[table_of_[field]];
  if (!table.fuses()) return optim::mix64(id);
  if (id >> optim::kFeatureShift != 0)
    fail(ErrorKind::data,
         "sample {}: the key {:#x} in field '{}' has more than {} bits, and shares its table with "
         "other fields",
         sample, id, fields_[field].name, optim::kFeatureShift);
  return optim::mix64(optim::fused_key(field - table.fields.begin, id));
}

}  // namespace psring::worker
