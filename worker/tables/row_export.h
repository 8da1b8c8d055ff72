#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <psring/worker/tables/row_file.h>

namespace psring::worker {

// Keys of an export's metadata.
inline constexpr const char* kExportStep = "psring.step";
inline constexpr const char* kExportId = "psring.export";
inline constexpr const char* kExportFollows = "psring.follows";

/// The counts of a table in an export.
struct ExportedTable {
  std::string name;
  std::uint64_t rows = 0;     ///< in the table
  std::uint64_t written = 0;  ///< new or changed since the export before; all in a base
  std::uint64_t removed = 0;
};

struct WrittenExport {
  std::filesystem::path path;
  std::uint64_t step = 0;
  std::optional<std::uint64_t> follows;  ///< the step of the export before; nothing: a base
  std::vector<ExportedTable> tables;
};

/// Writes the rows of a checkpoint's tables for readers that serve them (SavedTables): without the optimizer's state,
/// and if `folder` has an export already, only rows whose stored values differ from its, with the keys that have no row
/// any more. `base`: writes all rows, and a new chain begins. The file appears whole or not at all. Throws data if the
/// checkpoint has no tables, its step is not after the newest export's, or its tables differ from the export's; usage
/// if the exports have another type.
WrittenExport export_rows(const std::filesystem::path& checkpoint, const std::filesystem::path& folder, RowType type,
                          bool base);

}  // namespace psring::worker
