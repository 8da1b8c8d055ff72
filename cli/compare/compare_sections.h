#pragma once

#include <string>
#include <vector>

#include <psring/cli/compare/comparison.h>
#include <psring/cli/text_table.h>

namespace psring::cli {

/// A table below the main table.
struct Section {
  std::string title;
  TextTable table;
};

/// Everything that was measured (--wide): speed with its spread; bytes and memory of each process, with the formula and
/// the difference; the memory that sharding saves, beside the textbook's figures; staleness.
std::vector<Section> wide_sections(const std::vector<Row>& rows);

}  // namespace psring::cli
