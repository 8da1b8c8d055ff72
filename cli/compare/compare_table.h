#pragma once

#include <string>
#include <vector>

#include <psring/cli/compare/comparison.h>
#include <psring/cli/text_table.h>

namespace psring::cli {

/// The most columns of a terminal that a line of the table takes.
inline constexpr std::size_t kTableColumns = 100;

/// One line for each row, and one for its servers: predicted steps, speed, bytes, memory, equality, result, bottleneck.
/// `plain` makes it at most kTableColumns wide, whatever the figures are.
TextTable main_table(const std::vector<Row>& rows);
/// Explains the columns.
std::string legend(const std::vector<Row>& rows);

/// One line for each row: the bottleneck, its reason, and the next change to try; the predicted exposed communication,
/// if any.
std::vector<std::string> bound_lines(const std::vector<Row>& rows);

/// One line for each number of bytes, category of memory and equality that is not as the strategy declares.
std::vector<std::string> failures(const std::vector<Row>& rows);

}  // namespace psring::cli
