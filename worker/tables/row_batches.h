#pragma once

#include <map>
#include <span>
#include <vector>

#include <psring/worker/data/key_reader.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// The key fields of each table.
std::vector<TableFields> key_fields_of(std::span<const TableSpec> tables);

/// Reads the keys of the trainer's batches, asks for their rows, and shows these to the network.
class RowBatches {
 public:
  /// REQUIRES: specs and tables outlive it.
  RowBatches(std::span<const TableSpec> specs, Tables& tables) : specs_(specs), tables_(tables) {}

  /// Starts to bring the rows of these samples' keys here; see Tables::fetch. REQUIRES: the data set outlives this.
  void fetch(const Dataset& data, std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker,
             RowUse use);
  /// Gives the network the rows of the samples [samples.begin, samples.end) of the batch that was fetched last.
  void show(Range samples, Network& network);

 private:
  const std::span<const TableSpec> specs_;
  Tables& tables_;
  std::map<const Dataset*, KeyReader> readers_;
  std::vector<KeyBatch> keys_;  ///< by table
  std::vector<TableView> views_;
};

}  // namespace psring::worker
