#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/optim/checkpoint/shard.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/tables/row_use.h>

namespace psring::worker {

class KeyCounts;
struct TableView;

/// An index in Model::tables and Layout::tables.
using TableId = std::size_t;

/// The keys of a batch in one table, hashed (optim::mix64), bag by bag. A bag is the keys of one feature of one sample.
struct KeyBatch {
  std::vector<std::uint64_t> lookups;
  std::vector<std::uint32_t> offsets;  ///< bag b has the lookups offsets[b] .. offsets[b + 1]
};

/// The batches of a table that this process has trained.
struct TrainedBatches {
  std::uint64_t batches = 0;
  std::uint64_t lookups = 0;    ///< keys, each as often as it occurs
  std::uint64_t keys = 0;       ///< different keys of each batch, added up
  std::uint64_t most_keys = 0;  ///< different keys of one batch
};

/// The part of a strategy that answers for the rows of the model's tables: where they are when a pass wants them, how
/// their gradients reach their owners, and who updates them. For each (virtual) worker's batch the trainer calls fetch
/// once, then acquire, in each micro-batch, and grad_ready where a layer reads the table.
class Tables {
 public:
  virtual ~Tables() = default;
  /// Before the first step.
  virtual void start() {}
  /// Starts to bring the rows of a worker's batch here, as they are after `step` updates; never waits. `keys`: by
  /// table, at most TableLayout::most_keys each. Drops the rows of the worker's last batch.
  virtual void fetch(std::span<const KeyBatch> keys, Step step, std::size_t virtual_worker, RowUse use) = 0;
  /// The same for a step to come, for whose batch `begin` then returns true: it becomes the one that was fetched last.
  /// REQUIRES: at most TableLayout::lookahead steps are ahead, and the rows of this step have been acquired.
  virtual void fetch_ahead(std::span<const KeyBatch> /*keys*/, Step /*step*/) {}
  virtual bool begin(Step /*step*/) { return false; }
  /// The bags [bags.begin, bags.end) of the batch that was fetched last. The rows are readable after `acquire`.
  virtual TableView view(TableId table, Range bags) = 0;
  /// On return the rows of the batch are readable.
  virtual void acquire(TableId table) = 0;
  /// The gradients of the batch's rows are complete: starts their communication, never waits.
  virtual void grad_ready(TableId table) = 0;
  /// All gradients of the step have been handed over; on return this process has updated the rows that it owns.
  virtual void finish(Step step) = 0;
  /// Comes before the updates of dense parameters. If workers keep these over a loss, and servers keep the rows, owners
  /// have taken all gradients on return: rows are never behind dense parameters, and at most one step ahead.
  virtual void begin_updates() {}
  /// On return the owners have taken all gradients.
  virtual void quiesce() {}
  /// Returns this process's rows for a checkpoint, valid until the next step. Servers of rows alone have saved theirs.
  virtual std::vector<optim::TablePart> save(std::uint64_t step) = 0;
  /// The rows of this process, valid until the next step. Empty if servers have all of them.
  virtual std::vector<optim::TablePart> own_rows() const { return {}; }
  virtual TrainedBatches trained(TableId table) const = 0;
  /// This worker pushes nothing more (ssp, asp). Later reads give the rows of the end, once all workers have left.
  virtual void leave() {}
  /// See Pacing::staleness; of rows that no unit's servers have.
  virtual double staleness() { return 0; }
  /// Time that this worker has waited for rows, in total.
  virtual Nanoseconds waited() const { return Nanoseconds{0}; }
  /// Adds what the run moves and books for rows.
  virtual void predict(const KeyCounts& counts, Prediction& sum) const = 0;
};

/// Tables at servers. `opens`: no other part declares the tables to them. REQUIRES: plan and world outlive it.
std::unique_ptr<Tables> make_served_tables(const Plan& plan, const World& world, bool opens = false);
/// Returns the bytes of an arena that the batches of a table at servers take.
std::size_t lent_bytes(const TableLayout& table);

}  // namespace psring::worker
