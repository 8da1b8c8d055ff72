#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/cli/compare/comparison.h>

namespace psring::cli {

/// Writes into a comparison's run folder, with the figures as they were measured, unrounded:
///   compare.json  everything: each row with its runs, each process's bytes and memory, formula and difference
///   table.csv     a line for each row of the table, and for its servers
///   memory.csv    a line for each run, process and category: booked, formula, difference; the system's figures
///   compare.md    the table, the bottleneck of each row, and everything that --wide shows, in Markdown
/// Throws data if a file cannot be written.
void write_comparison(const std::filesystem::path& folder, const std::vector<std::string>& command,
                      const std::vector<Row>& rows, bool ended = true);
/// Returns whether the folder has a comparison that was not finished, as its compare.json says.
bool is_unfinished_comparison(const std::filesystem::path& folder);

/// Returns the folder of the row's run r (from 0): named by the label, with a folder below for each of several runs.
std::filesystem::path run_folder_of(const std::string& label, std::size_t run, std::size_t runs);

/// Writes compare.csv: all lines of all runs' metrics.jsonl. `runs`: the number of runs that each row has in the end.
/// Throws data if a file cannot be read or written.
void write_metrics_csv(const std::filesystem::path& folder, const std::vector<Row>& rows, std::size_t runs);

}  // namespace psring::cli
