#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/safetensors.h>

namespace psring::worker {

/// The type in which a file stores the values of rows. int8: a row has a scale, and value i is scale * byte i.
enum class RowType { f32, bf16, int8 };

/// Returns the type by its name: f32, bf16 or int8. Throws usage, naming the option.
RowType parse_row_type(const std::string& option, const std::string& name);
const char* name_of(RowType type);
/// Returns the bytes of a row: of int8 the scale, in f32, then the values.
std::size_t row_bytes(RowType type, std::size_t width);
/// Writes the values as a row of row_bytes. int8 rounds to nearest, with scale = the largest magnitude / 127.
void encode_row(RowType type, std::span<const float> values, std::span<std::byte> row);
void decode_row(RowType type, std::span<const std::byte> row, std::span<float> values);

// The tensors of a table NAME in a file:
//   NAME.keys     U64 [rows]            in the order of the hashed keys (optim::mix64)
//   NAME.values   F32, BF16 or I8 [rows, width]
//   NAME.scales   F32 [rows]            with I8 only
//   NAME.removed  U64 [keys]            in a delta, in the same order: keys that have no row any more
inline constexpr const char* kKeysOfRows = ".keys";
inline constexpr const char* kValuesOfRows = ".values";
inline constexpr const char* kScalesOfRows = ".scales";
inline constexpr const char* kRemovedRows = ".removed";

/// Reads a tensor's bytes from its start to its end, a MiB at a time.
class TensorStream {
 public:
  /// `entry`: null for a tensor without elements.
  TensorStream(const TensorFile& file, const TensorEntry* entry);
  bool done() const { return at_ == size_; }
  /// REQUIRES: so many bytes are left.
  void read(std::span<std::byte> out);

 private:
  const TensorFile& file_;
  const TensorEntry* const entry_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0;
  std::vector<std::byte> part_;
  std::size_t in_part_ = 0;
};

/// The tables of one safetensors file: a saved model, or an export. Nothing but the header is kept in memory. Safe for
/// use from several threads.
class RowFile {
 public:
  struct Table {
    std::string name;
    std::size_t width = 0;
    RowType type = RowType::f32;
    const TensorEntry* keys = nullptr;
    const TensorEntry* values = nullptr;
    const TensorEntry* scales = nullptr;   ///< of int8
    const TensorEntry* removed = nullptr;  ///< null: none
  };
  enum class Found { nothing, removed, row };

  /// Throws data, naming the file, if it has no table, or one whose tensors do not fit together.
  explicit RowFile(const std::string& path);

  const TensorFile& file() const { return file_; }
  const std::vector<Table>& tables() const { return tables_; }
  /// Returns null if the file has no such table.
  const Table* find(const std::string& name) const;
  /// Fills in `row` of row_bytes if the hashed key has a row.
  Found look_up(const Table& table, std::uint64_t hashed, std::span<std::byte> row) const;

 private:
  std::optional<std::uint64_t> position(const TensorEntry& keys, std::uint64_t hashed) const;

  const TensorFile file_;
  std::vector<Table> tables_;
};

/// The checksum of an export: of its step, and of its tables in the order of their names, each with its rows and
/// removed keys by ascending hashed key. It is the identity of the export.
class ExportChecksum {
 public:
  explicit ExportChecksum(std::uint64_t step) { add(step); }
  void begin_table(const std::string& name);
  void add_row(std::uint64_t hashed, std::span<const std::byte> row);
  void add_removed(std::uint64_t hashed) { add(~hashed); }
  std::string text() const;

 private:
  void add(std::uint64_t number);
  std::uint32_t crc_ = 0;
};

/// Reads the rows and the removed keys of a file's table, by ascending hashed key. Throws data, naming the file, if
/// keys are out of order.
class RowCursor {
 public:
  /// REQUIRES: file outlives this.
  RowCursor(const RowFile& file, const RowFile::Table& table);

  bool done() const { return !hashed_; }
  std::uint64_t hashed() const { return *hashed_; }
  bool is_removed() const { return removed_now_; }
  /// REQUIRES: the key was not removed.
  std::span<const std::byte> row() const { return row_; }
  void next();

 private:
  std::optional<std::uint64_t> next_key(TensorStream& keys, std::optional<std::uint64_t> before) const;

  const RowFile& file_;
  const RowFile::Table& table_;
  TensorStream keys_;
  TensorStream values_;
  TensorStream scales_;
  TensorStream removed_;
  std::optional<std::uint64_t> next_row_;
  std::optional<std::uint64_t> next_removed_;
  std::optional<std::uint64_t> hashed_;
  bool removed_now_ = false;
  std::vector<std::byte> row_;
};

}  // namespace psring::worker
