#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <psring/cli/comparison.h>

namespace psring::cli {

/// Writes into a comparison's run folder, with the figures as they were measured, unrounded:
///   compare.json  all of it: a row each, with its runs, each process's bytes and memory, formula and difference
///   table.csv     a line for each row of the table, and for its servers
///   memory.csv    a line for each run, process and category: booked, formula, difference; the system's figures
///   compare.md    the table, what bounds each row, and all that --wide shows, in Markdown
/// Throws data where one cannot be written.
void write_comparison(const std::filesystem::path& folder, const std::vector<std::string>& command,
                      const std::vector<Row>& rows, bool ended = true);
/// Is there a comparison in the folder that has not come to its end, as its compare.json says?
bool is_unfinished_comparison(const std::filesystem::path& folder);

/// Where the row's run r (from 0) lies in the folder: by its label, and of several runs in a folder of its own there.
std::filesystem::path run_folder_of(const std::string& label, std::size_t run, std::size_t runs);

/// compare.csv: all lines of all runs' metrics.jsonl, each row having `runs` of them in the end. Throws data where one
/// cannot be read or written.
void write_metrics_csv(const std::filesystem::path& folder, const std::vector<Row>& rows, std::size_t runs);

}  // namespace psring::cli
