#pragma once

#include <memory>
#include <vector>

#include <psring/optim/rows/table_rows.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/exchange/tables/table_batch.h>
#include <psring/worker/exchange/tables/tables.h>

namespace psring::worker {

/// Tables in this process. With virtual workers it repeats the arithmetic of as many: the gradients of each worker's
/// batch one after the other, added up in rank order in f32, times 1/n.
class LocalTables final : public Tables {
 public:
  /// REQUIRES: plan and world outlive it.
  LocalTables(const Plan& plan, const World& world);

  void start() override;
  std::vector<optim::TablePart> save(std::uint64_t /*step*/) override { return own_rows(); }
  std::vector<optim::TablePart> own_rows() const override;
  TrainedBatches trained(TableId table) const override { return sum_of_trained(batches_[table]); }
  void fetch(std::span<const KeyBatch> keys, Step step, std::size_t virtual_worker, RowUse use) override;
  TableView view(TableId table, Range bags) override { return batch(table).view(bags); }
  void acquire(TableId table) override;
  void grad_ready(TableId table) override;
  void finish(Step step) override;
  void predict(const KeyCounts& counts, Prediction& sum) const override;

 private:
  TableBatch& batch(TableId table) { return *batches_[table][current_]; }

  const Plan& plan_;
  std::vector<std::unique_ptr<optim::TableRows>> rows_;                   ///< by table
  std::vector<std::vector<std::unique_ptr<TableBatch>>> batches_;         ///< by table, then by virtual worker
  std::vector<std::vector<std::vector<optim::RowGradients>>> gradients_;  ///< of the step, as batches_; one list each
  std::size_t current_ = 0;  ///< the virtual worker whose batch was fetched last
};

/// Is the largest memory of an owner's indices known? It is not if there are several tables and rows of one leave: the
/// tables' largest indices are then of different times.
bool knows_index(const Plan& plan);

/// The memory that an owner books for a table's rows, by category.
std::map<Category, std::uint64_t> row_memory(const TableLayout& table, const optim::RowRule& rule,
                                             const KeyCounts::Most& most);

}  // namespace psring::worker
