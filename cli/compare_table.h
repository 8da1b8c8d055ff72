#pragma once

#include <string>
#include <vector>

#include <psring/cli/comparison.h>
#include <psring/cli/text_table.h>

namespace psring::cli {

/// Columns of a terminal that the table keeps to.
inline constexpr std::size_t kTableColumns = 100;

/// A row each, and one for its servers: speed, bytes, memory, equality, accuracy, what bounds it. With `plain` at most
/// kTableColumns wide, whatever is in it.
TextTable main_table(const std::vector<Row>& rows);
/// What its columns mean.
std::string legend(const std::vector<Row>& rows);

/// One line a row: what bounds it, why, and what to change next; and the predicted exposed communication, if any.
std::vector<std::string> bound_lines(const std::vector<Row>& rows);

/// One line for each of the bytes, categories of memory and equalities that are not as declared.
std::vector<std::string> failures(const std::vector<Row>& rows);

/// A table beside the main one.
struct Section {
  std::string title;
  TextTable table;
};

/// All that was measured: speed with its spread, bytes and memory of each process with formula and difference, and what
/// sharding saves beside the textbook's figures.
std::vector<Section> wide_sections(const std::vector<Row>& rows);

}  // namespace psring::cli
