#include <algorithm>
#include <ranges>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/tables/row_chain.h>
#include <psring/worker/tables/row_export.h>
#include <psring/worker/tables/row_file.h>
#include <psring/worker/tables/saved_tables.h>

namespace psring::worker {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSuffix = ".safetensors";

/// Reads the metadata of an export, as a base has it or as a delta has it.
Export read_export(const fs::path& path, bool base) {
  const TensorFile file(path.string());
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  Export one{.path = path, .id = text(kExportId), .follows = text(kExportFollows)};
  const auto step = read_number<decltype(one.step)>(text(kExportStep));
  if (!step || one.id.empty() || one.follows.empty() != base)
    fail(ErrorKind::data, "{}: the file's metadata is not that of an export", path.string());
  one.step = *step;
  return one;
}

/// Returns the export in a file of this name; nothing if the name is not that of an export.
std::optional<Export> export_at(const fs::path& path) {
  const std::string name = path.stem().string();
  const bool base = name.starts_with("base-");
  if (path.extension() != kSuffix || (!base && !name.starts_with("delta-"))) return std::nullopt;
  return read_export(path, base);
}

const RowFile::Table& table_of(const RowFile& file, const std::string& name) {
  const RowFile::Table* const table = file.find(name);
  if (table != nullptr) return *table;
  std::string names;
  for (const RowFile::Table& each : file.tables()) names += (names.empty() ? "" : ", ") + each.name;
  fail(ErrorKind::usage, "{}: no table '{}', only {}", file.file().path(), name, names);
}

}  // namespace

std::vector<Export> all_exports_in(const fs::path& folder) {
  std::vector<Export> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const auto one = export_at(entry.path())) all.push_back(*one);
  // A base that replaces a delta of its step comes after it.
  std::ranges::sort(all, {}, [](const Export& one) { return std::pair(one.step, one.follows.empty()); });
  return all;
}

std::vector<Export> exports_in(const fs::path& folder) {
  std::vector<Export> all = all_exports_in(folder);
  const auto base =
      std::ranges::find_if(std::views::reverse(all), [](const Export& one) { return one.follows.empty(); });
  if (base == std::views::reverse(all).end()) {
    if (!all.empty()) fail(ErrorKind::data, "{}: there are deltas, and no base", folder.string());
    return {};
  }
  all.erase(all.begin(), base.base() - 1);
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].follows != all[i - 1].id)
      fail(ErrorKind::data, "{}: it does not follow {}: an export between them is missing, or was made anew",
           all[i].path.string(), all[i - 1].path.filename().string());
  return all;
}

SavedTables::SavedTables(const fs::path& path) {
  if (!fs::is_directory(path)) {
    files_.push_back(std::make_unique<RowFile>(path.string()));
    const auto& metadata = files_.back()->file().metadata();
    if (metadata.contains(kExportFollows))
      fail(ErrorKind::data, "{}: a delta has a part of the rows; read the folder of its exports", path.string());
    if (metadata.contains(kExportId)) exports_.push_back(read_export(path, true));
    return;
  }
  exports_ = exports_in(path);
  if (exports_.empty()) fail(ErrorKind::data, "{}: the folder has no exports of rows (psring export)", path.string());
  for (const Export& one : exports_) {
    files_.push_back(std::make_unique<RowFile>(one.path.string()));
    for (const RowFile::Table& table : files_.back()->tables()) {
      const RowFile::Table* const first = files_.front()->find(table.name);
      if (first == nullptr || first->width != table.width || first->type != table.type)
        fail(ErrorKind::data, "{}: table '{}' is not that of {}", one.path.string(), table.name,
             exports_.front().path.filename().string());
    }
  }
}

SavedTables::SavedTables(SavedTables&&) noexcept = default;
SavedTables::~SavedTables() = default;

std::optional<std::uint64_t> SavedTables::step() const {
  return exports_.empty() ? std::nullopt : std::optional(exports_.back().step);
}

std::vector<std::string> SavedTables::tables() const {
  std::vector<std::string> names;
  for (const RowFile::Table& table : files_.front()->tables()) names.push_back(table.name);
  return names;
}

std::size_t SavedTables::width(const std::string& table) const { return table_of(*files_.front(), table).width; }

void SavedTables::verify() const {
  for (std::size_t i = 0; i < exports_.size(); ++i) {
    ExportChecksum checksum(exports_[i].step);
    for (const RowFile::Table& table : files_[i]->tables()) {
      checksum.begin_table(table.name);
      for (RowCursor cursor(*files_[i], table); !cursor.done(); cursor.next()) {
        if (cursor.is_removed())
          checksum.add_removed(cursor.hashed());
        else
          checksum.add_row(cursor.hashed(), cursor.row());
      }
    }
    if (checksum.text() != exports_[i].id)
      fail(ErrorKind::data, "{}: damaged: its checksum is {}, and {} in its metadata", exports_[i].path.string(),
           checksum.text(), exports_[i].id);
  }
}

std::uint64_t SavedTables::count(const std::string& table) const {
  std::uint64_t rows = 0;
  for (ChainCursor cursor(*this, table); !cursor.done(); cursor.next()) ++rows;
  return rows;
}

bool SavedTables::find(const std::string& table, std::uint64_t key, std::span<float> out) const {
  const RowFile::Table& first = table_of(*files_.front(), table);
  check(out.size() == first.width, "{} values for a row of {}", out.size(), first.width);
  std::vector<std::byte> row(row_bytes(first.type, first.width));
  for (const auto& file : std::views::reverse(files_)) {
    const RowFile::Table* const here = file->find(table);
    if (here == nullptr) continue;
    const RowFile::Found found = file->look_up(*here, optim::mix64(key), row);
    if (found == RowFile::Found::removed) return false;
    if (found == RowFile::Found::nothing) continue;
    decode_row(first.type, row, out);
    return true;
  }
  return false;
}

ChainCursor::ChainCursor(const SavedTables& rows, const std::string& table) {
  table_of(*rows.files_.front(), table);
  for (const auto& file : rows.files_)
    if (const RowFile::Table* const here = file->find(table))
      cursors_.push_back(std::make_unique<RowCursor>(*file, *here));
  settle();
}

void ChainCursor::next() {
  const std::uint64_t key = hashed();
  for (const auto& cursor : cursors_)
    if (!cursor->done() && cursor->hashed() == key) cursor->next();
  settle();
}

void ChainCursor::settle() {
  for (;;) {
    newest_ = nullptr;
    for (const auto& cursor : cursors_)
      if (!cursor->done() && (newest_ == nullptr || cursor->hashed() <= newest_->hashed())) newest_ = cursor.get();
    if (newest_ == nullptr || !newest_->is_removed()) return;
    const std::uint64_t key = newest_->hashed();
    for (const auto& cursor : cursors_)
      if (!cursor->done() && cursor->hashed() == key) cursor->next();
  }
}

}  // namespace psring::worker
