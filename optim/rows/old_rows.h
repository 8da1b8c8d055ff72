#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>

namespace psring::optim {

/// The values of the rows that an update changed, as they were before it: with them the version before the update can
/// be read. A row that the update made had its initial values.
struct OldRows {
  std::vector<std::uint64_t> keys;  ///< hashed, ascending
  std::vector<float> values;        ///< [keys, width]

  void clear() {
    keys.clear();
    values.clear();
  }
};

/// Returns the bytes that an owner books for the OldRows of the last update of each piece.
constexpr std::size_t old_row_bytes(const TableLayout& table, std::size_t workers) {
  return workers * table.most_keys * (sizeof(std::uint64_t) + table.width * sizeof(float));
}

/// True if servers keep OldRows: after a loss, the job continues from the version before the last.
inline bool keeps_old_rows(const JobOptions& job) {
  const bool servers_keep = job.recovery == "servers" || job.recovery == "both";
  return servers_keep && (job.goes_on() || job.replicas > 0);
}

}  // namespace psring::optim
