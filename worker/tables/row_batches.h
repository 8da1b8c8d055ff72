#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <psring/worker/data/key_reader.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// The key fields of each table.
std::vector<TableFields> key_fields_of(std::span<const TableSpec> tables);

/// Reads the keys of the trainer's batches, asks for their rows, and shows these to the network.
class RowBatches {
 public:
  /// `data`, `sampler`: of training. REQUIRES: plan, specs, tables and the data sets outlive this.
  RowBatches(const Plan& plan, std::span<const TableSpec> specs, Tables& tables, const Dataset& data,
             const Sampler& sampler);

  /// Starts to bring the rows of a worker's batch here, unless that was done ahead; see Tables::fetch.
  void begin_step(std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker);
  /// Starts to bring those of the next steps. REQUIRES: the rows of this step have been acquired.
  void look_ahead();
  /// Starts to bring rows here for reading.
  void read(const Dataset& data, std::span<const std::uint32_t> samples, Step step);
  /// Gives the network the rows of the samples [samples.begin, samples.end) of the batch that was fetched last.
  void show(Range samples, Network& network);

 private:
  std::span<const KeyBatch> keys_of(const Dataset& data, std::span<const std::uint32_t> samples);

  const Plan& plan_;
  const std::span<const TableSpec> specs_;
  Tables& tables_;
  const Dataset& data_;
  Sampler ahead_;                             ///< the trainer's, at the epoch of the next step to ask for
  std::optional<std::uint64_t> epoch_ahead_;  ///< nothing: it has none yet
  std::uint64_t next_ = 0;                    ///< the step whose rows are asked for next
  std::uint64_t last_ = 0;                    ///< the step after those that may be asked for now
  std::map<const Dataset*, KeyReader> readers_;
  std::vector<KeyBatch> keys_;  ///< by table
  std::vector<TableView> views_;
};

}  // namespace psring::worker
