#pragma once

#include <memory>
#include <vector>

#include <psring/worker/exchange/table_batch.h>
#include <psring/worker/exchange/tables.h>

namespace psring::worker {

/// Tables at servers, bsp. A batch's rows are pulled by their keys; their gradients are pushed in the same order.
/// Batches take turns in two memories: servers read the gradients of a step where they lie, until its rows in the next
/// version have come.
class ServedTables final : public Tables {
 public:
  /// The bytes of an arena that a table's batches take.
  static std::size_t lent_bytes(const TableLayout& table) { return kBatches * TableBatch::lent_bytes(table); }

  /// `opens`: declares the tables to the servers, because no other part does. REQUIRES: plan and world outlive it.
  ServedTables(const Plan& plan, const World& world, bool opens = false);

  void start() override;

  void fetch(std::span<const KeyBatch> keys, Step step, std::size_t virtual_worker, RowUse use) override;
  TableView view(TableId table, Range bags) override { return batch(table).view(bags); }
  void acquire(TableId table) override;
  void grad_ready(TableId table) override;
  void finish(Step /*step*/) override {}
  void quiesce() override;
  Nanoseconds waited() const override { return waited_; }
  void predict(const KeyCounts& counts, Prediction& sum) const override;

 private:
  static constexpr std::size_t kBatches = 2;

  TableBatch& batch(TableId table) { return *batches_[table][turn_]; }
  void wait(const auto& what);

  const Plan& plan_;
  const World& world_;
  const bool opens_;
  std::vector<std::vector<std::unique_ptr<TableBatch>>> batches_;  ///< by table
  std::size_t turn_ = 0;
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
