#pragma once

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/optim/rows/table_rows.h>

namespace psring::optim {

/// Returns the figures of a table's rows at one owner: {name, rows, updates, hot: [{key, updates}]}. `updates` counts a
/// row's steps with a gradient, or its occurrences if a rule counts these; `hot` has the 16 rows with the most, each
/// with its key in hexadecimal. Reads the head of every record.
Json row_figures(const TableLayout& table, const TableRows& rows);

}  // namespace psring::optim
