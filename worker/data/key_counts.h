#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/optim/rows/row_index.h>
#include <psring/optim/rows/row_rules.h>
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
    std::size_t workers = 1;                  ///< that read for themselves, virtual ones as well
    std::size_t owners = 1;                   ///< of each table's buckets
    std::vector<optim::RowRules> rules = {};  ///< by table; empty: every key gets a row, which stays
    std::uint64_t first = 0;
    std::uint64_t last = 0;                     ///< steps [first, last)
    std::uint64_t beyond = 0;                   ///< steps after these whose rows were pulled ahead
    std::vector<TableLayout> layouts = {};      ///< of the tables; needed for frames and for what follows
    bool in_parts = false;                      ///< rows ahead are answered in two parts
    std::vector<std::size_t> cached_rows = {};  ///< by table, that a worker's cache has room for; empty: there is none
    std::size_t cached_steps = 0;               ///< that a row stays there
    std::vector<std::vector<optim::RowAge>> known = {};  ///< by table: the rows before step `first`
  };
  explicit KeyCounts(Run run);

  /// Different keys of a worker's batches at an owner, added up over the steps.
  struct Moved {
    std::uint64_t trained = 0;       ///< their rows are pulled, and their gradients pushed
    std::uint64_t asked = 0;         ///< with those of the steps beyond, whose rows are pulled
    std::uint64_t mark_bytes = 0;    ///< that come with the rows of the steps ahead; see net::kAhead
    std::uint64_t cached = 0;        ///< of `asked`, those whose rows the worker's cache has
    std::uint64_t cached_bytes = 0;  ///< that say which; see net::kCached
    std::uint64_t early = 0;         ///< of `asked`, those whose rows the step before does not change
    std::uint64_t frames = 0;        ///< that ask for `asked`; 0 without Run::layouts
  };
  const Moved& moved(std::size_t table, std::size_t worker, std::size_t owner) const {
    return moved_[table][worker * owners_ + owner];
  }
  /// The keys that have rows at the run's end, hashed, ascending.
  std::span<const std::uint64_t> keys(std::size_t table) const { return keys_[table]; }
  /// The part of these that an owner has.
  std::span<const std::uint64_t> keys(std::size_t table, std::size_t owner) const;
  /// The most rows that an owner has at any time, and the most that its indices book.
  struct Most {
    std::size_t rows = 0;
    std::size_t counters = 0;  ///< of keys, see optim::RowCounters
    std::size_t index_bytes = 0;
  };
  const Most& most(std::size_t table, std::size_t owner) const { return most_[table][owner]; }
  std::size_t owners() const { return owners_; }
  /// Steps that were counted, without those beyond.
  std::uint64_t steps() const { return steps_; }

 private:
  struct Trained {
    std::uint64_t key = 0;
    std::uint32_t update = 0;  ///< counted from 1
    std::uint32_t count = 0;   ///< occurrences, if a rule counts them
  };
  static void keep_last(std::vector<Trained>& trained);
  void note_most(std::size_t table, const optim::RowRules& rules, const std::vector<Trained>& keys);

  std::size_t owners_;
  std::uint64_t steps_;
  std::vector<std::vector<Moved>> moved_;         ///< by table: by worker, then by owner
  std::vector<std::vector<std::uint64_t>> keys_;  ///< by table
  std::vector<std::vector<Most>> most_;           ///< by table, then by owner
};

/// The number of keys in each map of a RowIndex that holds them.
std::array<std::size_t, optim::RowIndex::kMaps> keys_by_map(std::span<const std::uint64_t> keys);

}  // namespace psring::worker
