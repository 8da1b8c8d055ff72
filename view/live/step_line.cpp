#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <psring/view/live/step_line.h>

namespace psring::view {
namespace {

/// Reads the members of a JSON object, one after the other.
class Members {
 public:
  explicit Members(std::string_view text) : rest_(text) { is_good_ = take('{'); }

  /// Goes to the next member. Returns false at the object's end, and where the text is not an object.
  bool next() {
    if (!is_good_ || take('}')) return false;
    if (!is_first_ && !take(',')) return fail();
    is_first_ = false;
    key_ = string();
    return is_good_ && (take(':') || fail());
  }
  /// Was the object's end reached, with nothing after it? Call it once `next` has returned false.
  bool is_good() const { return is_good_ && rest_.find_first_not_of(" \t\r") == std::string_view::npos; }
  /// The name as it is written, with its escapes.
  std::string_view key() const { return key_; }

  /// Reads the member's value, if it is a number; skips all others.
  std::optional<double> number() {
    skip_spaces();
    if (starts_with_digit(rest_.substr(rest_.starts_with('-') ? 1 : 0))) {
      double value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error == std::errc{}) {
        rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
        return value;
      }
    }
    skip_value();
    return std::nullopt;
  }

 private:
  static bool starts_with_digit(std::string_view text) {
    return !text.empty() && text.front() >= '0' && text.front() <= '9';
  }
  bool fail() { return is_good_ = false; }
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }
  bool take(char wanted) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view string() {
    if (!take('"')) return fail(), "";
    std::size_t end = 0;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return fail(), "";
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  /// A string, a word, or all between matching brackets.
  void skip_value() {
    std::size_t depth = 0;
    do {
      skip_spaces();
      if (rest_.empty()) return void(fail());
      const char c = rest_.front();
      if (c == '"') {
        string();
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}')) return;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && depth-- == 0) return void(fail());
      rest_.remove_prefix(1);
    } while (is_good_ && (depth > 0 || (!rest_.empty() && rest_.front() != ',' && rest_.front() != '}')));
  }

  std::string_view rest_;
  std::string_view key_;
  bool is_good_ = false;
  bool is_first_ = true;
};

std::optional<std::uint64_t> whole(std::optional<double> number, double most) {
  if (!number || !(*number >= 0) || *number > most || *number != std::floor(*number)) return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

}  // namespace

std::optional<StepLine> read_step_line(std::string_view text) {
  constexpr double kMostRank = std::numeric_limits<std::uint32_t>::max();
  constexpr double kMostCount = 1e15;  // exact in a double
  std::optional<double> worker, step, time, step_time, membership;
  StepLine line;
  Members members(text);
  while (members.next()) {
    const std::string_view key = members.key();
    const std::optional<double> number = members.number();
    if (key == "worker") worker = number;
    if (key == "step") step = number;
    if (key == "time_s") time = number;
    if (key == "step_s") step_time = number;
    if (key == "membership") membership = number;
    if (key == "loss") line.loss = number;
    if (key == "samples") line.samples = number.value_or(0);
    if (key == "compute_s") line.compute_s = number.value_or(0);
    if (key == "exposed_comm_s") line.exposed_s = number.value_or(0);
    if (key == "bubble_s") line.bubble_s = number.value_or(0);
    if (key == "staleness") line.staleness = number.value_or(0);
  }
  const auto rank = whole(worker, kMostRank);
  const auto index = whole(step, kMostCount);
  if (!members.is_good() || !rank || !index || !time || !step_time) return std::nullopt;
  line.worker = static_cast<std::uint32_t>(*rank);
  line.step = *index;
  line.time_s = *time;
  line.step_s = *step_time;
  line.membership = whole(membership, kMostCount).value_or(0);
  return line;
}

}  // namespace psring::view
