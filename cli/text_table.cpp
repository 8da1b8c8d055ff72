#include <algorithm>
#include <utility>

#include <psring/cli/text_table.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

/// Returns the columns of the character that begins at this byte. CJK symbols, ideographs and full-width forms are the
/// characters of three bytes from U+2E80 on, but for some that psring does not print; those of four bytes are emoji.
std::size_t columns_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  if (byte(at) >= 0xF0U) return 2;
  return byte(at) > 0xE2U || (byte(at) == 0xE2U && byte(at + 1) >= 0xBAU) ? 2 : 1;
}

/// Returns the number of bytes of the text's first characters that take at most `columns`.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (!begins_character(text[at])) continue;
    if (columns_at(text, at) > columns) break;
    columns -= columns_at(text, at);
  }
  return at;
}

std::string padding(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns_of(text)), ' ');
}

void end_line(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (begins_character(text[at])) columns += columns_at(text, at);
  return columns;
}

std::string wrapped(std::string_view text, std::size_t most, std::size_t indent) {
  std::string lines;
  for (std::size_t room = most; !text.empty(); room = most - indent) {
    if (!lines.empty()) lines += std::string(indent, ' ');
    std::size_t end = bytes_of(text, room);
    if (end < text.size() && columns_at(text, end) == 1) {  // Chinese may be cut between any two characters
      const std::size_t space = text.rfind(' ', end);
      if (space != std::string_view::npos && space > 0) end = space;
    }
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return lines;
}

void TextTable::add(std::vector<std::string> cells) {
  check(cells.size() <= columns_.size(), "a row has {} cells, the table {} columns", cells.size(), columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::plain(std::size_t most) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  const auto widen = [&](const std::vector<std::string>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], columns_of(cells[c]));
  };
  widen(columns_);
  for (const auto& row : rows_) widen(row);
  std::size_t figures = 0;
  for (std::size_t c = 1; c < widths.size(); ++c) figures += 1 + widths[c];
  constexpr std::size_t kLeastName = 8;
  most = std::max(most, figures + kLeastName);
  widths[0] = std::min(widths[0], most - figures);

  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string_view name = cells[0];
    if (columns_of(name) > widths[0]) {
      text += wrapped(name, most, 2);
      name = "";
    }
    text += name;
    text += padding(name, widths[0]);
    for (std::size_t c = 1; c < cells.size(); ++c)
      text.append(" ").append(padding(cells[c], widths[c])).append(cells[c]);
    end_line(text);
  };
  line(columns_);
  text += std::string(widths[0] + figures, '-') + "\n";
  for (const auto& row : rows_) line(row);
  return text;
}

std::string TextTable::markdown() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) {
      text += "| ";
      for (const char c : cell) text += c == '|' ? std::string("\\|") : std::string(1, c);
      text += ' ';
    }
    text += "|\n";
  };
  line(columns_);
  text += "|---|";
  for (std::size_t c = 1; c < columns_.size(); ++c) text += "---:|";
  text += '\n';
  for (const auto& row : rows_) line(row);
  return text;
}

std::string csv_line(const std::vector<std::string>& values) {
  std::string line;
  for (const std::string& value : values) {
    if (&value != values.data()) line += ',';
    if (value.find_first_of(",\"\r\n") == std::string::npos) {
      line += value;
      continue;
    }
    line += '"';
    for (const char c : value) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

}  // namespace psring::cli
