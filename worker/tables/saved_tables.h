#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace psring::worker {

class RowFile;

/// An export in a folder: its file, and what its metadata says.
struct Export {
  std::filesystem::path path;
  std::uint64_t step = 0;
  std::string id;       ///< a checksum of the step and of all tensors
  std::string follows;  ///< the id of the export that a delta follows; empty: a base
};

/// Returns all exports of the folder, oldest first, whether or not they follow each other.
std::vector<Export> all_exports_in(const std::filesystem::path& folder);

/// Returns the folder's newest base and the deltas that follow it, oldest first; none if the folder has no export.
/// Throws data, naming the file, if an export is missing between them.
std::vector<Export> exports_in(const std::filesystem::path& folder);

/// The rows of trained tables, read without a job and without servers: of a saved model (model.safetensors), of a
/// folder of exports, a base and deltas (`psring export`), or of one base. Files are read through the system's page
/// cache, which all processes share. Safe for use from several threads.
class SavedTables {
 public:
  /// Throws data, naming the file, if it cannot be read, or is a delta, or if an export is missing in the folder.
  explicit SavedTables(const std::filesystem::path& path);
  SavedTables(SavedTables&&) noexcept;
  ~SavedTables();

  /// The step of the newest export; nothing for a saved model.
  std::optional<std::uint64_t> step() const;
  std::vector<std::string> tables() const;
  /// The values of a row. Throws usage if there is no such table.
  std::size_t width(const std::string& table) const;
  /// Reads all files. Throws data, naming the file, if an export's bytes are not those that its checksum was made of.
  void verify() const;
  /// Counts the table's rows, and reads all its keys.
  std::uint64_t count(const std::string& table) const;
  /// Fills in the values of a key's row. Returns false if the key has no row: in training it would have its initial
  /// values. Throws usage if there is no such table. REQUIRES: out.size() == width(table).
  bool find(const std::string& table, std::uint64_t key, std::span<float> out) const;

 private:
  std::vector<Export> exports_;
  std::vector<std::unique_ptr<RowFile>> files_;  ///< oldest first
  friend class ChainCursor;
};

}  // namespace psring::worker
