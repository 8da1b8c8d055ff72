#include <algorithm>
#include <cstring>
#include <optional>

#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/optim/norm.h>
#include <psring/optim/rows/row_hash.h>

namespace psring::optim {
namespace {

/// Reads the words of a segment one after the other; every block that is needed is read and checked once.
class SegmentStream {
 public:
  explicit SegmentStream(const SavedPlace& place) : place_(place) {}

  void skip(std::size_t words) { at_ += words; }
  void read(std::span<std::byte> out) {
    while (!out.empty()) {
      const std::size_t block = at_ / kSegmentBlock;
      if (block != block_) place_.shard->read_block(*place_.segment, block, words_);
      block_ = block;
      const auto rest = std::as_bytes(std::span(words_)).subspan(at_ % kSegmentBlock * sizeof(float));
      const std::size_t bytes = std::min(rest.size(), out.size());
      std::memcpy(out.data(), rest.data(), bytes);
      out = out.subspan(bytes);
      at_ += bytes / sizeof(float);
    }
  }

 private:
  const SavedPlace place_;
  std::size_t at_ = 0;
  std::optional<std::size_t> block_;
  std::vector<float> words_;
};

/// Reads a segment's keys in order, and checks them.
class KeyStream {
 public:
  explicit KeyStream(const SavedPlace& place) : place_(place), stream_(place) {}

  std::uint64_t next() {
    std::uint64_t key = 0;
    stream_.read(std::as_writable_bytes(std::span(&key, 1)));
    const Range buckets = place_.segment->range;
    if (const std::size_t bucket = bucket_of(key);
        bucket < buckets.begin || bucket >= buckets.end || (before_ && key <= *before_))
      fail(ErrorKind::data, "{}: damaged: key {:#x} of table '{}' is out of order", place_.shard->path(), key,
           place_.segment->tensor);
    before_ = key;
    return key;
  }

 private:
  const SavedPlace place_;
  SegmentStream stream_;
  std::optional<std::uint64_t> before_;
};

}  // namespace

std::vector<RowArray> row_arrays(std::size_t width, const RowRule& rule) {
  std::vector<RowArray> arrays{{kRowKeys, 0, 2}, {kRowCounts, 2, 2}, {kValues, 4, width}};
  for (std::size_t slot = 0; slot < rule.slots(); ++slot)
    arrays.push_back({slot_array(slot), arrays.back().begin + arrays.back().words, rule.slot_width(width)});
  return arrays;
}

SavedTensor saved_table(const TableLayout& table, const RowRule& rule) {
  SavedTensor saved{.name = table.name, .shape = {kBuckets}, .arrays = {}, .width = table.width};
  for (const RowArray& array : row_arrays(table.width, rule)) saved.arrays.push_back(array.name);
  return saved;
}

void read_rows(const Checkpoint& saved, const std::string& table, Range buckets, TableRows& rows) {
  const std::vector<RowArray> arrays = row_arrays(rows.options().width, *rows.options().rule);
  std::vector<std::byte> record((arrays.back().begin + arrays.back().words) * sizeof(float));
  std::vector<float> numbers(record.size() / sizeof(float) - arrays[2].begin);
  const std::vector<SavedPlace>& places = saved.places(table, kRowKeys);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Segment& segment = *places[i].segment;
    if (segment.range.intersect(buckets).empty()) continue;
    KeyStream keys(places[i]);
    std::vector<SegmentStream> streams;
    for (std::size_t array = 1; array < arrays.size(); ++array) {
      const SavedPlace& place = saved.places(table, arrays[array].name).at(i);
      if (place.segment->width != arrays[array].words)
        fail(ErrorKind::data, "{}: {} of table '{}' has {} words a row, {} expected", place.shard->path(),
             arrays[array].name, table, place.segment->width, arrays[array].words);
      streams.emplace_back(place);
    }
    for (std::size_t row = 0; row < *segment.rows; ++row) {
      const std::uint64_t key = keys.next();
      if (bucket_of(key) >= buckets.end) break;
      const bool skipped = bucket_of(key) < buckets.begin;
      std::memcpy(record.data(), &key, sizeof key);
      for (std::size_t array = 1; array < arrays.size(); ++array) {
        const std::size_t words = arrays[array].words;
        if (skipped)
          streams[array - 1].skip(words);
        else
          streams[array - 1].read(
              std::span(record).subspan(arrays[array].begin * sizeof(float), words * sizeof(float)));
      }
      if (skipped) continue;
      std::memcpy(numbers.data(), record.data() + arrays[2].begin * sizeof(float), numbers.size() * sizeof(float));
      if (!all_finite(std::span<const float>(numbers)))
        fail(ErrorKind::data, "{}: key {:#x} of table '{}' has NaN or infinity", places[i].shard->path(), key, table);
      rows.insert(record);
    }
  }
}

struct SavedRowStream::Part {
  KeyStream keys;
  SegmentStream values;
  const SavedPlace place;
  std::size_t left;
};

SavedRowStream::SavedRowStream(const Checkpoint& saved, const SavedTensor& table)
    : saved_(saved), table_(table), values_(table.width) {}
SavedRowStream::~SavedRowStream() = default;

bool SavedRowStream::next() {
  const std::vector<SavedPlace>& places = saved_.places(table_.name, kRowKeys);
  while (part_ == nullptr || part_->left == 0) {
    if (places_ == places.size()) return false;
    const SavedPlace& values = saved_.places(table_.name, kValues).at(places_);
    const SavedPlace& keys = places[places_++];
    if (values.segment->width != table_.width || values.segment->rows != keys.segment->rows)
      fail(ErrorKind::data, "{}: the values of table '{}' do not fit its keys", values.shard->path(), table_.name);
    part_ = std::make_unique<Part>(Part{KeyStream(keys), SegmentStream(values), values, *keys.segment->rows});
  }
  --part_->left;
  hashed_ = part_->keys.next();
  part_->values.read(std::as_writable_bytes(std::span(values_)));
  if (!all_finite(std::span<const float>(values_)))
    fail(ErrorKind::data, "{}: key {:#x} of table '{}' has NaN or infinity", part_->place.shard->path(),
         unmix64(hashed_), table_.name);
  return true;
}

std::vector<RowAge> saved_ages(const Checkpoint& saved, const std::string& table) {
  std::vector<RowAge> all;
  const std::vector<SavedPlace>& places = saved.places(table, kRowKeys);
  for (std::size_t i = 0; i < places.size(); ++i) {
    KeyStream keys(places[i]);
    SegmentStream counts(saved.places(table, kRowCounts).at(i));
    for (std::size_t row = 0; row < *places[i].segment->rows; ++row) {
      RowAge& age = all.emplace_back(RowAge{.key = keys.next()});
      counts.read(std::as_writable_bytes(std::span(&age.count, 1)));
      counts.read(std::as_writable_bytes(std::span(&age.last, 1)));
    }
  }
  return all;
}

}  // namespace psring::optim
