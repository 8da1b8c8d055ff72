#include <algorithm>
#include <map>
#include <string_view>

#include <psring/cli/options/config_file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::string_view kSpace = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// A line, parsed from left to right.
class Line {
 public:
  Line(std::string_view text, std::string place) : text_(text), rest_(trim(text)), place_(std::move(place)) {}

  bool is_empty() const { return rest_.empty() || rest_.front() == '#'; }

  std::string key() {
    const std::string_view key = trim(rest_.substr(0, rest_.find('=')));
    if (rest_.find('=') == std::string_view::npos || key.empty() ||
        key.find_first_of("#\"'[") != std::string_view::npos)
      bad();
    rest_ = trim(rest_.substr(rest_.find('=') + 1));
    return std::string(key);
  }

  std::string value() {
    std::string value;
    if (take('[')) {
      while (!take(']')) {
        if (!value.empty()) {
          if (!take(',')) bad();
          value += ',';
        }
        value += item(",]#");
      }
    } else {
      value = item("#");
    }
    if (!is_empty()) bad();
    return value;
  }

 private:
  [[noreturn]] void bad() const { fail(ErrorKind::usage, "{}: expected KEY = VALUE, got '{}'", place_, trim(text_)); }

  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_ = trim(rest_.substr(1));
    return true;
  }

  std::string item(std::string_view ends) {
    const char quote = rest_.empty() ? '#' : rest_.front();
    const bool quoted = quote == '"' || quote == '\'';
    const std::size_t end = quoted ? rest_.find(quote, 1) : std::min(rest_.find_first_of(ends), rest_.size());
    if (end == std::string_view::npos) bad();
    std::string item(quoted ? rest_.substr(1, end - 1) : trim(rest_.substr(0, end)));
    if (!quoted && (item.empty() || item.find_first_of("\"'") != std::string::npos)) bad();
    rest_ = trim(rest_.substr(quoted ? end + 1 : end));
    return item;
  }

  std::string_view text_;
  std::string_view rest_;
  std::string place_;
};

std::string text_of(const std::string& file) {
  try {
    return read_text(file, kMostBytes);
  } catch (const Error& error) {
    throw error.with_context("--config");
  }
}

}  // namespace

std::string config_line(const std::string& file, std::size_t line) {
  return fmt::format("--config {}, line {}", file, line);
}

std::vector<ConfigEntry> read_config_file(const std::string& file) {
  const std::string text = text_of(file);
  std::vector<ConfigEntry> entries;
  std::map<std::string, std::size_t> lines;
  std::size_t number = 0;
  for (const std::string_view content : lines_of(text)) {
    Line line(content, config_line(file, ++number));
    if (content.find('\0') != std::string_view::npos)
      fail(ErrorKind::usage, "{}: a NUL byte", config_line(file, number));
    if (line.is_empty()) continue;
    const std::string key = line.key();
    const auto [first, is_new] = lines.emplace(key, number);
    if (!is_new)
      fail(ErrorKind::usage, "{}: key '{}' is given twice, in line {} as well", config_line(file, number), key,
           first->second);
    entries.push_back({key, line.value(), number});
  }
  return entries;
}

}  // namespace psring::cli
