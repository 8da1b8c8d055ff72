#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <psring/common/device/buffer.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/exchange/tables/unique_keys.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/tables/table_protocol.h>

namespace psring::worker {

/// The rows of one worker's batch in one table: its different keys, their values and their gradients, in memory for the
/// largest batch. What travels lies in the arena that servers of the host map.
class TableBatch {
 public:
  /// Rows that are pulled ahead under bsp come in two parts (net::kAhead); of a cache's batch (net::kCached), only
  /// those that the cache does not have.
  enum class Parts : std::uint8_t { none, ahead, cached };
  /// REQUIRES: layout, rule and world outlive it.
  TableBatch(const TableLayout& layout, const optim::TableRule& rule, const World& world, Parts parts);
  TableBatch(const TableBatch&) = delete;
  TableBatch& operator=(const TableBatch&) = delete;
  ~TableBatch();
  /// The bytes that it books, by category.
  static void predict(const TableLayout& layout, const optim::TableRule& rule, Parts parts, Prediction& sum);
  /// The bytes of an arena that it takes, at most.
  static std::size_t lent_bytes(const TableLayout& layout);

  /// Takes the keys of a batch, and clears the gradients.
  void take(const KeyBatch& keys, RowUse use);
  const TrainedBatches& trained() const { return trained_; }
  /// The different keys, ascending.
  std::span<const std::uint64_t> keys() const;
  /// Their occurrences; empty if nobody counts them, or for reading.
  std::span<const std::uint32_t> counts() const;
  RowKeys row_keys() { return {keys(), counts(), with_counts_.bytes(), landing_.bytes()}; }
  /// Their rows, in the type that travels, for whoever brings them here; `arrived` makes them readable.
  Elements rows();
  void arrived();
  TableView view(Range bags);
  /// The rows' gradients as they travel: rounded to the table's type, or each row encoded (TableRule::codec). REQUIRES:
  /// called once for each batch that is trained.
  ConstElements gradients();

 private:
  std::size_t values() const { return count_ * layout_.width; }
  bool narrow() const { return layout_.type != DType::f32; }
  Buffer& summed_gradients() { return wide_gradients_.size_bytes() > 0 ? wide_gradients_ : gradients_; }

  const TableLayout& layout_;
  const optim::TableRule& rule_;
  MemoryLedger& memory_;
  UniqueKeys unique_;
  Buffer keys_;
  Buffer counts_;       ///< empty if nobody counts
  Buffer with_counts_;  ///< keys as they travel, with counts or a cache's bits; empty if they travel alone
  Buffer lookups_;
  Buffer offsets_;
  Buffer landing_;         ///< for rows that come in parts; empty if they do not
  Buffer rows_;            ///< in the type that travels
  Buffer gradients_;       ///< as they travel
  Buffer wide_rows_;       ///< in f32; empty if rows travel in f32
  Buffer wide_gradients_;  ///< in f32; empty if gradients travel in f32
  std::size_t count_ = 0;  ///< of different keys
  std::size_t lookups_taken_ = 0;
  std::size_t bags_ = 0;
  RowUse use_ = RowUse::train;
  TrainedBatches trained_;
};

/// Returns the batches that take turns at a worker: servers read the gradients of a step where they lie, until its rows
/// in the next version have come.
constexpr std::size_t batches_of(const TableLayout& layout) { return 2 + layout.lookahead; }
/// Returns the sum over the batches of one table.
TrainedBatches sum_of_trained(std::span<const std::unique_ptr<TableBatch>> batches);

}  // namespace psring::worker
