#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/half.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/tables/row_file.h>

namespace psring::worker {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;

std::size_t element_bytes(RowType type) {
  return type == RowType::f32 ? sizeof(float) : type == RowType::bf16 ? sizeof(BFloat16) : 1;
}

std::optional<RowType> type_of(const TensorEntry& values) {
  if (values.dtype == "F32") return RowType::f32;
  if (values.dtype == "BF16") return RowType::bf16;
  if (values.dtype == "I8") return RowType::int8;
  return std::nullopt;
}

bool is_list(const TensorEntry& entry, const char* dtype) { return entry.dtype == dtype && entry.shape.size() == 1; }

}  // namespace

RowType parse_row_type(const std::string& option, const std::string& name) {
  for (const RowType type : {RowType::f32, RowType::bf16, RowType::int8})
    if (name == name_of(type)) return type;
  fail(ErrorKind::usage, "{}: expected f32, bf16 or int8, got '{}'", option, name);
}

const char* name_of(RowType type) { return type == RowType::f32 ? "f32" : type == RowType::bf16 ? "bf16" : "int8"; }

std::size_t row_bytes(RowType type, std::size_t width) {
  return width * element_bytes(type) + (type == RowType::int8 ? sizeof(float) : 0);
}

void encode_row(RowType type, std::span<const float> values, std::span<std::byte> row) {
  check(row.size() == row_bytes(type, values.size()), "a row of {} bytes", row.size());
  if (type == RowType::f32) {
    std::memcpy(row.data(), values.data(), row.size());
    return;
  }
  if (type == RowType::bf16) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const BFloat16 value(values[i]);
      std::memcpy(row.data() + i * sizeof value, &value, sizeof value);
    }
    return;
  }
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127;
  std::memcpy(row.data(), &scale, sizeof scale);
  for (std::size_t i = 0; i < values.size(); ++i)
    row[sizeof scale + i] = static_cast<std::byte>(
        static_cast<std::int8_t>(scale > 0 ? std::clamp(std::nearbyint(values[i] / scale), -127.0F, 127.0F) : 0));
}

void decode_row(RowType type, std::span<const std::byte> row, std::span<float> values) {
  check(row.size() == row_bytes(type, values.size()), "a row of {} bytes", row.size());
  if (type == RowType::f32) {
    std::memcpy(values.data(), row.data(), row.size());
    return;
  }
  if (type == RowType::bf16) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      BFloat16 value;
      std::memcpy(&value, row.data() + i * sizeof value, sizeof value);
      values[i] = static_cast<float>(value);
    }
    return;
  }
  float scale = 0;
  std::memcpy(&scale, row.data(), sizeof scale);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * static_cast<float>(static_cast<std::int8_t>(row[sizeof scale + i]));
}

TensorStream::TensorStream(const TensorFile& file, const TensorEntry* entry)
    : file_(file), entry_(entry), size_(entry == nullptr ? 0 : entry->size_bytes) {}

void TensorStream::read(std::span<std::byte> out) {
  while (!out.empty()) {
    if (in_part_ == part_.size()) {
      part_.resize(std::min<std::uint64_t>(kPart, size_ - at_));
      check(!part_.empty(), "a tensor is read past its end");
      file_.read_bytes(*entry_, at_, part_);
      in_part_ = 0;
    }
    const std::size_t bytes = std::min(out.size(), part_.size() - in_part_);
    std::memcpy(out.data(), part_.data() + in_part_, bytes);
    out = out.subspan(bytes);
    in_part_ += bytes;
    at_ += bytes;
  }
}

RowFile::RowFile(const std::string& path) : file_(path) {
  for (const TensorEntry& values : file_.entries()) {
    if (!values.name.ends_with(kValuesOfRows)) continue;
    const std::string name = values.name.substr(0, values.name.size() - std::strlen(kValuesOfRows));
    const TensorEntry* const keys = file_.find(name + kKeysOfRows);
    if (keys == nullptr) continue;  // a dense tensor
    const auto type = type_of(values);
    Table table{.name = name, .width = 0, .type = type.value_or(RowType::f32), .keys = keys, .values = &values};
    table.removed = file_.find(name + kRemovedRows);
    table.scales = file_.find(name + kScalesOfRows);
    const std::size_t rows = keys->elements;
    if (!type || !is_list(*keys, "U64") || values.shape.size() != 2 || values.shape[0] != rows ||
        values.shape[1] == 0 || (table.removed != nullptr && !is_list(*table.removed, "U64")) ||
        (table.scales != nullptr) != (type == RowType::int8) ||
        (table.scales != nullptr && (!is_list(*table.scales, "F32") || table.scales->elements != rows)))
      fail(ErrorKind::data, "{}: the tensors of table '{}' do not fit together", path, name);
    table.width = values.shape[1];
    tables_.push_back(std::move(table));
  }
  if (tables_.empty()) fail(ErrorKind::data, "{}: the file has no table of rows", path);
  std::ranges::sort(tables_, {}, &Table::name);  // tensors stand otherwise: "a-b.keys" comes before "a.keys"
}

const RowFile::Table* RowFile::find(const std::string& name) const {
  const auto found = std::ranges::find(tables_, name, &Table::name);
  return found == tables_.end() ? nullptr : &*found;
}

std::optional<std::uint64_t> RowFile::position(const TensorEntry& keys, std::uint64_t hashed) const {
  constexpr std::size_t kNear = 64;
  std::array<std::uint64_t, kNear> near{};
  const auto read = [&](std::uint64_t first, std::size_t count) {
    const std::span<std::uint64_t> out = std::span(near).first(count);
    file_.read_bytes(keys, first * sizeof(std::uint64_t), std::as_writable_bytes(out));
    std::ranges::transform(out, out.begin(), optim::mix64);
    return std::span<const std::uint64_t>(out);
  };
  // Hashed keys are spread evenly, so that a guess in proportion is near; every other probe halves the rest.
  std::uint64_t begin = 0;
  std::uint64_t end = keys.elements;
  double low = 0;
  double high = 0x1p64;
  for (bool guess = true; end - begin > kNear; guess = !guess) {
    const auto size = static_cast<double>(end - begin);
    const bool apart = guess && high > low;
    const double part = apart ? std::clamp((static_cast<double>(hashed) - low) / (high - low), 0.0, 1.0) : 0.5;
    const std::uint64_t at = begin + std::min(static_cast<std::uint64_t>(part * size), end - begin - 1);
    const std::uint64_t there = read(at, 1)[0];
    if (there == hashed) return at;
    (there < hashed ? begin : end) = there < hashed ? at + 1 : at;
    (there < hashed ? low : high) = static_cast<double>(there);
  }
  const auto last = read(begin, static_cast<std::size_t>(end - begin));
  const auto found = std::ranges::lower_bound(last, hashed);
  if (found == last.end() || *found != hashed) return std::nullopt;
  return begin + static_cast<std::uint64_t>(found - last.begin());
}

RowFile::Found RowFile::look_up(const Table& table, std::uint64_t hashed, std::span<std::byte> row) const {
  const auto at = position(*table.keys, hashed);
  if (!at) {
    const bool gone = table.removed != nullptr && position(*table.removed, hashed);
    return gone ? Found::removed : Found::nothing;
  }
  if (table.scales != nullptr) {
    file_.read_bytes(*table.scales, *at * sizeof(float), row.first(sizeof(float)));
    row = row.subspan(sizeof(float));
  }
  file_.read_bytes(*table.values, *at * row.size(), row);
  return Found::row;
}

void ExportChecksum::add(std::uint64_t number) { crc_ = crc32c(std::as_bytes(std::span(&number, 1)), crc_); }

void ExportChecksum::begin_table(const std::string& name) {
  add(name.size());
  crc_ = crc32c(std::as_bytes(std::span(name)), crc_);
}

void ExportChecksum::add_row(std::uint64_t hashed, std::span<const std::byte> row) {
  add(hashed);
  crc_ = crc32c(row, crc_);
}

std::string ExportChecksum::text() const { return fmt::format("{:08x}", crc_); }

RowCursor::RowCursor(const RowFile& file, const RowFile::Table& table)
    : file_(file),
      table_(table),
      keys_(file.file(), table.keys),
      values_(file.file(), table.values),
      scales_(file.file(), table.scales),
      removed_(file.file(), table.removed),
      row_(row_bytes(table.type, table.width)) {
  next_row_ = next_key(keys_, std::nullopt);
  next_removed_ = next_key(removed_, std::nullopt);
  next();
}

std::optional<std::uint64_t> RowCursor::next_key(TensorStream& keys, std::optional<std::uint64_t> before) const {
  if (keys.done()) return std::nullopt;
  std::uint64_t key = 0;
  keys.read(std::as_writable_bytes(std::span(&key, 1)));
  const std::uint64_t hashed = optim::mix64(key);
  if (before && hashed <= *before)
    fail(ErrorKind::data, "{}: damaged: key {} of table '{}' is out of order", file_.file().path(), key, table_.name);
  return hashed;
}

void RowCursor::next() {
  if (next_row_ && next_row_ == next_removed_)
    fail(ErrorKind::data, "{}: damaged: key {} of table '{}' has a row and is removed", file_.file().path(),
         optim::unmix64(*next_row_), table_.name);
  removed_now_ = next_removed_ && (!next_row_ || *next_removed_ < *next_row_);
  hashed_ = removed_now_ ? next_removed_ : next_row_;
  if (!hashed_) return;
  if (removed_now_) {
    next_removed_ = next_key(removed_, hashed_);
    return;
  }
  const std::size_t scale = table_.scales == nullptr ? 0 : sizeof(float);
  scales_.read(std::span(row_).first(scale));
  values_.read(std::span(row_).subspan(scale));
  next_row_ = next_key(keys_, hashed_);
}

}  // namespace psring::worker
