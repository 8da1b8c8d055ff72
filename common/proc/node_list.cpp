#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/node_list.h>

namespace psring {
namespace {

/// Reads a text from left to right.
class Reader {
 public:
  Reader(std::string_view variable, std::string_view text, const char* expected)
      : variable_(variable), text_(text), expected_(expected) {}

  bool at_end() const { return at_ == text_.size(); }
  bool at(char wanted) const { return !at_end() && text_[at_] == wanted; }
  bool take(char wanted) {
    if (!at(wanted)) return false;
    ++at_;
    return true;
  }
  void require(char wanted) {
    if (!take(wanted)) refuse();
  }
  /// Returns the characters before the next one of `ends`.
  std::string_view until(std::string_view ends) {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  /// Returns a number of at most nine digits, and its width.
  std::pair<std::uint32_t, std::size_t> number() {
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (digits.empty() || digits.size() > 9) refuse();
    std::uint32_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return {value, digits.size()};
  }
  [[noreturn]] void refuse() const {
    fail(ErrorKind::usage, "{}={}: expected a list such as {}", variable_, text_, expected_);
  }
  void check_size(std::size_t nodes) const {
    if (nodes > kMostNodes) fail(ErrorKind::usage, "{}: lists more than {} nodes", variable_, kMostNodes);
  }

 private:
  std::string_view variable_;
  std::string_view text_;
  const char* expected_;
  std::size_t at_ = 0;
};

/// Reads the ranges after a bracket, and appends each of their numbers to each name.
std::vector<std::string> append_ranges(Reader& reader, const std::vector<std::string>& names) {
  std::vector<std::string> longer;
  do {
    const auto [first, width] = reader.number();
    const std::uint32_t last = reader.take('-') ? reader.number().first : first;
    if (last < first) reader.refuse();
    reader.check_size((std::size_t{last} - first + 1) * names.size() + longer.size());
    for (const std::string& name : names)
      for (std::uint32_t i = first; i <= last; ++i) longer.push_back(fmt::format("{}{:0{}}", name, i, width));
  } while (reader.take(','));
  reader.require(']');
  return longer;
}

}  // namespace

std::vector<std::string> parse_node_list(std::string_view variable, std::string_view text) {
  Reader reader(variable, text, "n[1-3,7]");
  std::vector<std::string> all;
  do {
    std::vector<std::string> names = {""};
    do {
      const std::string_view plain = reader.until("[],");
      for (std::string& name : names) name += plain;
      if (reader.take('['))
        names = append_ranges(reader, names);
      else if (plain.empty())
        reader.refuse();
    } while (!reader.at_end() && !reader.at(','));
    reader.check_size(all.size() + names.size());
    all.insert(all.end(), names.begin(), names.end());
  } while (reader.take(','));
  return all;
}

std::vector<std::size_t> parse_tasks_per_node(std::string_view variable, std::string_view text) {
  Reader reader(variable, text, "3,1 or 2(x3)");
  std::vector<std::size_t> all;
  do {
    const std::size_t tasks = reader.number().first;
    std::size_t nodes = 1;
    if (reader.take('(')) {
      reader.require('x');
      nodes = reader.number().first;
      reader.require(')');
    }
    reader.check_size(all.size() + nodes);
    all.insert(all.end(), nodes, tasks);
  } while (reader.take(','));
  if (!reader.at_end()) reader.refuse();
  return all;
}

}  // namespace psring
