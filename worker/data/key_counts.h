#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/optim/rows/row_index.h>
#include <psring/worker/data/dataset.h>
#include <psring/worker/data/key_reader.h>
#include <psring/worker/data/sampler.h>

namespace psring::worker {

/// Counts the keys of a run's steps by reading the samples that its workers read, without computing: a prediction of
/// bytes and memory. The exchange finds different keys with a hash table; this sorts them, so that an error of one does
/// not repeat in the other.
class KeyCounts {
 public:
  /// The samples that a run reads.
  struct Run {
    const Dataset& data;
    Sampler sampler;
    std::vector<TableFields> tables;
    std::size_t workers = 1;  ///< that read for themselves, virtual ones as well
    std::size_t owners = 1;   ///< of each table's buckets
    std::uint64_t first = 0;
    std::uint64_t last = 0;  ///< steps [first, last)
  };
  explicit KeyCounts(Run run);

  /// Different keys of a worker's batches at an owner, added up over the steps.
  std::uint64_t pulled(std::size_t table, std::size_t worker, std::size_t owner) const {
    return pulled_[table][worker * owners_ + owner];
  }
  /// The same of all owners.
  std::uint64_t pulled(std::size_t table, std::size_t worker) const;
  /// All different keys of the run, hashed, ascending: those that have rows at its end.
  std::span<const std::uint64_t> keys(std::size_t table) const { return keys_[table]; }
  /// The part of these that an owner has.
  std::span<const std::uint64_t> keys(std::size_t table, std::size_t owner) const;
  std::size_t owners() const { return owners_; }

 private:
  std::size_t owners_;
  std::vector<std::vector<std::uint64_t>> pulled_;  ///< by table: by worker, then by owner
  std::vector<std::vector<std::uint64_t>> keys_;    ///< by table
};

/// The number of keys in each map of a RowIndex that holds them.
std::array<std::size_t, optim::RowIndex::kMaps> keys_by_map(std::span<const std::uint64_t> keys);

}  // namespace psring::worker
