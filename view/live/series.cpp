#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include <psring/view/live/series.h>

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

void LiveSeries::add(const StepLine& line) {
  if (!wants(line.step)) return;
  Point& point = points_[line.step];
  point.time_s = std::max(point.time_s, line.time_s);
  if (line.samples > 0) point.loss += line.loss.value_or(0) * line.samples;
  point.samples += line.samples;
  if (line.step_s > 0) point.rate += line.samples / line.step_s;
  point.step_s += line.step_s;
  point.exposed_s += line.exposed_s;
  point.staleness += line.staleness;
  point.lines += 1;
  while (points_.size() > kMost) {
    stride_ *= 2;
    std::erase_if(points_, [&](const auto& entry) { return !wants(entry.first); });
  }
}

LiveSeries::Points::const_iterator LiveSeries::window_begin(double window_s) const {
  if (points_.size() < 2) return points_.end();
  auto at = std::prev(points_.end(), 2);
  while (at != points_.begin() && last_time_s() - at->second.time_s < window_s) --at;
  return at;
}

double LiveSeries::steps_per_second(double window_s) const {
  const auto first = window_begin(window_s);
  if (first == points_.end()) return 0;
  const double time = last_time_s() - first->second.time_s;
  return time > 0 ? static_cast<double>(points_.rbegin()->first - first->first) / time : 0;
}

double LiveSeries::samples_per_second(double window_s) const {
  const auto first = window_begin(window_s);
  if (first == points_.end()) return points_.empty() ? 0 : points_.rbegin()->second.rate;
  return first->second.samples * steps_per_second(window_s);
}

std::string LiveSeries::json() const {
  std::string text;
  const auto column = [&](const char* name, const auto& value) {
    text += fmt::format("{}\"{}\":[", text.empty() ? "{" : ",", name);
    const char* comma = "";
    for (const auto& [step, point] : points_) {
      const double number = value(step, point);
      if (std::isfinite(number))
        fmt::format_to(std::back_inserter(text), "{}{:.6g}", comma, number);
      else
        fmt::format_to(std::back_inserter(text), "{}null", comma);
      comma = ",";
    }
    text += "]";
  };
  column("time_s", [](std::uint64_t, const Point& point) { return point.time_s; });
  column("loss", [](std::uint64_t, const Point& point) { return point.loss / point.samples; });
  column("samples_per_second", [](std::uint64_t, const Point& point) { return point.rate; });
  column("step_s", [](std::uint64_t, const Point& point) { return point.step_s / point.lines; });
  column("exposed_s", [](std::uint64_t, const Point& point) { return point.exposed_s / point.lines; });
  column("staleness", [](std::uint64_t, const Point& point) { return point.staleness / point.lines; });
  text += ",\"step\":[";
  const char* comma = "";
  for (const auto& [step, point] : points_) {
    fmt::format_to(std::back_inserter(text), "{}{}", comma, step);
    comma = ",";
  }
  return text + "]}";
}

}  // namespace psring::view
