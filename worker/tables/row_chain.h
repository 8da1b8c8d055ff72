#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/tables/row_file.h>
#include <psring/worker/tables/saved_tables.h>

namespace psring::worker {

/// Reads the rows of a table that remain after all exports of a folder, by ascending hashed key, as row_bytes.
class ChainCursor {
 public:
  /// REQUIRES: rows outlives this.
  ChainCursor(const SavedTables& rows, const std::string& table);
  bool done() const { return newest_ == nullptr; }
  std::uint64_t hashed() const { return newest_->hashed(); }
  std::span<const std::byte> row() const { return newest_->row(); }
  void next();

 private:
  void settle();

  std::vector<std::unique_ptr<RowCursor>> cursors_;  ///< oldest first
  RowCursor* newest_ = nullptr;                      ///< the newest with the smallest key
};

}  // namespace psring::worker
