#pragma once

#include <span>
#include <vector>

#include <psring/common/proc/job.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/worker/data/dataset.h>
#include <psring/worker/model/model.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::worker {

/// Throws usage, naming the flags, if the model has tables and an option of the job is not made for them, or if an
/// option is about tables and the model has none. `planned`: the samples cannot be read.
void check_tables(const JobOptions& job, const StrategyKind& strategy, const Model& model, bool planned);

/// Throws usage, naming the flag, if a worker's cache has no room for a row of some table.
void check_cache(const JobOptions& job, std::span<const TableLayout> tables);

/// Throws usage, naming the flag, if gradients of rows take no fewer bytes in a table's code than without it.
void check_gain(std::span<const TableLayout> tables, const optim::TableRules& rules);

/// Throws usage, naming the flag, if an option of the job has no effect on the tables of a user's program.
void check_program_tables(const JobOptions& job);

/// Parses the initial values of rows: uniform:A, normal:A or constant:A. Throws usage, naming the flag.
Init parse_row_init(const std::string& flag, const std::string& text);

/// Returns the pieces into which an owner cuts its rows of a table, by the bytes of a worker's largest batch.
std::size_t table_pieces(const TableLayout& table, std::size_t owners);

/// The layouts of the model's tables, among `owners`. Throws usage, naming the flag.
std::vector<TableLayout> table_layouts(const JobOptions& job, const Model& model, const Dataset& data,
                                       std::size_t owners);

}  // namespace psring::worker
