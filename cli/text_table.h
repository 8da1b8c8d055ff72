#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace psring::cli {

/// What a table shows where there is nothing to show.
inline constexpr const char* kNothing = "—";

/// Columns that a text takes in a terminal: its characters, each of which psring writes in one.
std::size_t columns_of(std::string_view text);

/// The text in lines of at most `most` columns, cut between words, all but the first indented; a longer word is cut.
std::string wrapped(std::string_view text, std::size_t most, std::size_t indent);

/// A table of text: a name and figures in each row.
class TextTable {
 public:
  /// The first is that of the names.
  explicit TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  /// A row. What is missing at the end is empty.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// For a terminal: names to the left, figures to the right, each column as wide as its widest cell. With `most`,
  /// no line is wider: a name that does not fit stands on a line of its own, in pieces where it must.
  /// REQUIRES: the other columns leave at least 8 for names.
  std::string plain(std::size_t most = 1000) const;
  std::string markdown() const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A line of comma-separated values (RFC 4180), with its end.
std::string csv_line(const std::vector<std::string>& values);

}  // namespace psring::cli
