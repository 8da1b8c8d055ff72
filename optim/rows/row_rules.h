#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace psring::optim {

/// When keys get rows, and when the rows of a table leave. A key gets a row in the update of its occurrence number
/// `admit`. Rows leave in sweeps, by the key, the occurrences and the last update of each row alone, within the groups
/// of kCut buckets that are never divided between owners: so the same keys have rows with any number of owners.
struct RowRules {
  std::uint64_t admit = 1;    ///< occurrences in batches until a key gets a row
  bool zero = false;          ///< until then it is read as zeros, else as its initial values
  std::uint64_t ttl = 0;      ///< steps without an update after which a row leaves; 0: rows do not age
  std::size_t keep = 0;       ///< rows that `ttl` leaves in the table at least, each group its share
  std::size_t most = 0;       ///< rows of the table after a sweep, each group its share; 0: no limit
  bool by_count = false;      ///< beyond `most` the rows with the fewest occurrences leave, else the oldest
  std::uint64_t sweep = 100;  ///< steps between two sweeps

  bool admits() const { return admit > 1; }
  /// Do occurrences travel with the keys?
  bool counts() const { return admits() || by_count; }
  bool sweeps() const { return ttl > 0 || most > 0; }
  /// Is a sweep due after so many updates?
  bool due(std::uint64_t updates) const { return sweeps() && updates % sweep == 0; }
};

/// Parses --table-admit K[,zero], --table-ttl STEPS[,keep=N], --table-rows R[,by=lru|lfu] and --table-sweep K; "" is no
/// rule. Throws usage, naming the flag.
RowRules parse_row_rules(const std::string& admit, const std::string& ttl, const std::string& rows,
                         std::uint64_t sweep);

/// A row as a sweep sees it.
struct RowAge {
  std::uint64_t key = 0;    ///< hashed
  std::uint32_t count = 0;  ///< occurrences
  std::uint32_t last = 0;   ///< the table's updates up to the row's last one
  std::uint32_t row = 0;
};

/// Returns the part of `rows` that a group has: the shares differ by at most one, and their sum is `rows`.
std::size_t share_of_group(std::size_t rows, std::size_t group);

/// Puts the rows of one group that leave after so many updates first, and returns their number. Rows that have not been
/// updated for longest leave first, ties by key; by occurrences, those with the fewest, ties by age.
std::size_t choose_leaving(const RowRules& rules, std::uint64_t updates, std::size_t group, std::span<RowAge> rows);

}  // namespace psring::optim
