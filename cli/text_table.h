#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace psring::cli {

/// The cell of a table without a value.
inline constexpr const char* kNothing = "—";

/// Returns the columns that a text takes in a terminal: two for each Chinese character or other wide character, one for
/// each other character.
std::size_t columns_of(std::string_view text);

/// Returns the text in lines of at most `most` columns, cut between words, or before a wide character.
/// All lines but the first are indented. A longer word is cut.
std::string wrapped(std::string_view text, std::size_t most, std::size_t indent);

/// A table of text: a name and figures in each row.
class TextTable {
 public:
  /// The first column has the names.
  explicit TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  /// Adds a row. Missing cells at the end are empty.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// Returns the table for a terminal: names to the left, figures to the right, each column as wide as its widest cell.
  /// With `most`, a name that does not fit stands on a line of its own, in pieces where it must, so that no line is
  /// wider, unless the other columns leave less than 8 for names.
  std::string plain(std::size_t most = 1000) const;
  std::string markdown() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Returns a line of comma-separated values (RFC 4180), with its line end.
std::string csv_line(const std::vector<std::string>& values);

}  // namespace psring::cli
