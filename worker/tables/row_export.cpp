#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/folder_lock.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/tables/row_chain.h>
#include <psring/worker/tables/row_export.h>

namespace psring::worker {
namespace fs = std::filesystem;
namespace {

/// The difference between a checkpoint's table and the exports before: read anew for each tensor that is written, so
/// that memory does not grow with the table.
class Difference {
 public:
  /// `before`: null: a base.
  Difference(const optim::Checkpoint& saved, const optim::SavedTensor& table, const SavedTables* before, RowType type)
      : saved_(saved), table_(table), before_(before), type_(type) {}

  /// Calls on_row(hashed, row) for each new or changed row, and on_removed(hashed) for each key without a row now, by
  /// ascending key. Returns the number of rows in the table.
  template <class OnRow, class OnRemoved>
  std::uint64_t for_each(const OnRow& on_row, const OnRemoved& on_removed) const {
    std::optional<ChainCursor> old;
    if (before_ != nullptr) old.emplace(*before_, table_.name);
    std::vector<std::byte> row(row_bytes(type_, table_.width));
    std::uint64_t rows = 0;
    for (optim::SavedRowStream now(saved_, table_); now.next(); ++rows) {
      for (; old && !old->done() && old->hashed() < now.hashed(); old->next()) on_removed(old->hashed());
      encode_row(type_, now.values(), row);
      const bool was_there = old && !old->done() && old->hashed() == now.hashed();
      if (!was_there || !std::ranges::equal(old->row(), row)) on_row(now.hashed(), std::span<const std::byte>(row));
      if (was_there) old->next();
    }
    for (; old && !old->done(); old->next()) on_removed(old->hashed());
    return rows;
  }

 private:
  const optim::Checkpoint& saved_;
  const optim::SavedTensor& table_;
  const SavedTables* const before_;
  const RowType type_;
};

/// A tensor of the export, and how to write its bytes.
struct Written {
  StoredTensor tensor;
  std::function<void(TensorWriter&)> write;
};

/// Adds the tensors of a table, and its rows to the checksum.
ExportedTable add_table(const Difference& difference, const optim::SavedTensor& table, RowType type, bool base,
                        std::vector<Written>& tensors, ExportChecksum& checksum) {
  ExportedTable counts{.name = table.name};
  checksum.begin_table(table.name);
  counts.rows = difference.for_each(
      [&](std::uint64_t hashed, std::span<const std::byte> row) {
        ++counts.written;
        checksum.add_row(hashed, row);
      },
      [&](std::uint64_t hashed) {
        ++counts.removed;
        checksum.add_removed(hashed);
      });
  const auto keys = [=](TensorWriter& writer, std::uint64_t hashed) {
    const std::uint64_t key = optim::unmix64(hashed);
    writer.append_bytes(std::as_bytes(std::span(&key, 1)));
  };
  const auto no_row = [](std::uint64_t, std::span<const std::byte>) {};
  const auto no_removed = [](std::uint64_t) {};
  const std::size_t scale = type == RowType::int8 ? sizeof(float) : 0;
  const char* const dtype = type == RowType::f32 ? "F32" : type == RowType::bf16 ? "BF16" : "I8";
  tensors.push_back(
      {{.name = table.name + kKeysOfRows, .dtype = "U64", .shape = {counts.written}}, [=](TensorWriter& writer) {
         difference.for_each([&](std::uint64_t hashed, auto) { keys(writer, hashed); }, no_removed);
       }});
  tensors.push_back({{.name = table.name + kValuesOfRows, .dtype = dtype, .shape = {counts.written, table.width}},
                     [=](TensorWriter& writer) {
                       difference.for_each(
                           [&](auto, std::span<const std::byte> row) { writer.append_bytes(row.subspan(scale)); },
                           no_removed);
                     }});
  if (scale > 0)
    tensors.push_back(
        {{.name = table.name + kScalesOfRows, .dtype = "F32", .shape = {counts.written}}, [=](TensorWriter& writer) {
           difference.for_each([&](auto, std::span<const std::byte> row) { writer.append_bytes(row.first(scale)); },
                               no_removed);
         }});
  if (!base)
    tensors.push_back(
        {{.name = table.name + kRemovedRows, .dtype = "U64", .shape = {counts.removed}}, [=](TensorWriter& writer) {
           difference.for_each(no_row, [&](std::uint64_t hashed) { keys(writer, hashed); });
         }});
  return counts;
}

/// Throws unless the checkpoint's tables are those of the exports.
void check_follows(const Export& last, const SavedTables& before, const optim::Checkpoint& saved,
                   std::span<const optim::SavedTensor> tables, RowType type) {
  const std::vector<std::string> names = before.tables();
  for (const optim::SavedTensor& table : tables)
    if (std::ranges::find(names, table.name) == names.end() || before.width(table.name) != table.width)
      fail(ErrorKind::data, "{}: table '{}' of width {} is not in {}", saved.folder().string(), table.name, table.width,
           last.path.string());
  if (names.size() != tables.size())
    fail(ErrorKind::data, "{}: {} tables, and {} in {}", saved.folder().string(), tables.size(), names.size(),
         last.path.string());
  const RowFile newest(last.path.string());
  if (newest.tables().front().type != type)
    fail(ErrorKind::usage, "--type {}: the rows of {} are {}; --base begins a new chain", name_of(type),
         last.path.string(), name_of(newest.tables().front().type));
}

/// Removes the files of exports that were ended in the middle. REQUIRES: no other process exports into the folder.
void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("base-") || name.starts_with("delta-");
    if (ours && name.find(".safetensors.") != std::string::npos && name.ends_with(".partial"))
      left.push_back(entry.path());
  }
  std::error_code none;  // a file that stays takes room alone
  for (const fs::path& path : left) fs::remove(path, none);
}

}  // namespace

WrittenExport export_rows(const fs::path& checkpoint, const fs::path& folder, RowType type, bool base) {
  const optim::Checkpoint saved(checkpoint);
  std::vector<optim::SavedTensor> tables;
  for (const optim::SavedTensor& tensor : saved.manifest().tensors)
    if (tensor.width > 0) tables.push_back(tensor);
  if (tables.empty()) fail(ErrorKind::data, "{}: the checkpoint has no tables", checkpoint.string());
  std::ranges::sort(tables, {}, &optim::SavedTensor::name);
  make_folder(folder);
  const FolderLock lock(folder.string(), Deadline(SystemClock().now()));
  if (lock.outcome() == FolderLock::Outcome::in_use)
    fail(ErrorKind::usage, "{}: another process exports into the folder", folder.string());
  remove_leftovers(folder);

  const std::vector<Export> chain = base ? all_exports_in(folder) : exports_in(folder);
  const bool replaces = base && !chain.empty() && saved.step() == chain.back().step && !chain.back().follows.empty();
  if (!chain.empty() && saved.step() <= chain.back().step && !replaces)
    fail(ErrorKind::data, "{}: step {} is not after step {} of {}", checkpoint.string(), saved.step(),
         chain.back().step, chain.back().path.string());
  std::optional<SavedTables> before;
  if (!chain.empty() && !base) {
    before.emplace(folder);
    check_follows(chain.back(), *before, saved, tables, type);
  }
  WrittenExport written{.path = folder / fmt::format("{}-{:08}.safetensors", before ? "delta" : "base", saved.step()),
                        .step = saved.step()};
  if (before) written.follows = chain.back().step;

  ExportChecksum checksum(written.step);
  std::vector<Written> tensors;
  std::vector<Difference> differences;
  differences.reserve(tables.size());
  for (const optim::SavedTensor& table : tables)
    differences.emplace_back(saved, table, before ? &*before : nullptr, type);
  for (std::size_t i = 0; i < tables.size(); ++i)
    written.tables.push_back(add_table(differences[i], tables[i], type, !before, tensors, checksum));
  std::vector<StoredTensor> stored;
  for (const Written& each : tensors) stored.push_back(each.tensor);
  std::map<std::string, std::string> metadata{{kExportStep, fmt::format("{}", written.step)},
                                              {kExportId, checksum.text()}};
  if (before) metadata[kExportFollows] = chain.back().id;
  TensorWriter writer(written.path.string(), stored, metadata);
  for (const Written& each : tensors) each.write(writer);
  writer.commit();
  return written;
}

}  // namespace psring::worker
