#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include <psring/common/base/layout.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

/// The rows of a table that a worker brought in its last steps (--table-cache), in the type that travels. The rows that
/// came first leave first: when they are older than `steps` steps, or when the cache is full. So what it holds is a
/// function of the batches' keys alone.
class RowCache {
 public:
  /// The steps that a row stays here: the bound of ssp:K.
  static std::size_t steps_of(const JobOptions& job);
  /// The rows that `bytes` hold, at most those that `steps` steps can bring.
  static std::size_t rows_in(const TableLayout& table, std::size_t bytes, std::size_t steps);
  /// The bytes that it books, by category.
  static void predict(const TableLayout& table, std::size_t rows, Prediction& sum);

  /// REQUIRES: the ledger outlives it.
  RowCache(const TableLayout& table, std::size_t rows, std::size_t steps, MemoryLedger& ledger);

  /// Copies the rows of a step's batch that are here into their places of `rows`. Returns 1 for each key whose row is
  /// here, valid until the next batch. `keys`: hashed, ascending, at most TableLayout::most_keys. REQUIRES: steps
  /// ascend.
  std::span<const std::uint8_t> take(std::uint64_t step, std::span<const std::uint64_t> keys,
                                     std::span<std::byte> rows);
  /// Keeps the rows of that batch that have come since; a second call changes nothing.
  void keep(std::uint64_t step, std::span<const std::uint64_t> keys, std::span<const std::byte> rows);

 private:
  /// The rows of one step: consecutive places, counted without end, of ascending keys.
  struct Brought {
    std::uint64_t step = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  void drop_to(std::uint64_t first);
  std::uint64_t& key(std::uint64_t place) { return keys_.as<std::uint64_t>()[place % capacity_]; }
  std::span<std::byte> row(std::uint64_t place) {
    return rows_.bytes().subspan(place % capacity_ * row_bytes_, row_bytes_);
  }

  const std::size_t row_bytes_;
  const std::size_t capacity_;
  const std::size_t steps_;
  Buffer keys_;
  Buffer rows_;
  Buffer here_;                  ///< of the last batch
  std::deque<Brought> brought_;  ///< the oldest first
};

}  // namespace psring::worker
