#include <limits>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/spec.h>

namespace psring {
namespace {

std::size_t parse_whole(std::string_view flag, std::string_view text, std::size_t least) {
  const auto value = read_number<std::size_t>(text);
  if (!value || *value < least)
    fail(ErrorKind::usage, "{}: expected a whole number {}, got '{}'", flag, least == 0 ? ">= 0" : "> 0", text);
  return *value;
}

}  // namespace

Spec Spec::parse(std::string_view flag, std::string_view text) {
  Spec spec;
  spec.flag_ = flag;
  spec.text_ = text;
  const std::size_t colon = text.find(':');
  spec.name_ = text.substr(0, colon);
  if (spec.name_.empty()) fail(ErrorKind::usage, "{}: expected NAME or NAME:ARGUMENTS, got '{}'", flag, text);
  if (colon == std::string_view::npos) return spec;
  spec.argument_ = text.substr(colon + 1);
  std::string_view rest = spec.argument_;
  if (rest.find('=') == std::string_view::npos) return spec;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos && pair.data() == spec.argument_.data() && !pair.empty()) {
      spec.before_pairs_ = pair;
      continue;
    }
    if (equals == std::string_view::npos || equals == 0) spec.fail_pair(pair);
    const std::string key(pair.substr(0, equals));
    if (!spec.values_.emplace(key, pair.substr(equals + 1)).second)
      fail(ErrorKind::usage, "{}: key '{}' stands twice in '{}'", flag, key, text);
  }
  return spec;
}

Spec Spec::with_free_text_as(const std::string& key) const {
  Spec spec = *this;
  const std::string& free_text = values_.empty() ? argument_ : before_pairs_;
  if (!free_text.empty() && !spec.values_.emplace(key, free_text).second)
    fail(ErrorKind::usage, "{}: key '{}' stands twice in '{}': '{}' is its value, too", flag_, key, text_, free_text);
  spec.before_pairs_.clear();
  return spec;
}

const std::map<std::string, std::string>& Spec::pairs() const {
  if (!before_pairs_.empty()) fail_pair(before_pairs_);
  return values_;
}

void Spec::fail_pair(std::string_view pair) const {
  fail(ErrorKind::usage, "{}: expected KEY=VALUE, got '{}' in '{}'", flag_, pair, text_);
}

std::size_t Spec::whole(const std::string& key, std::size_t fallback, std::size_t least, std::size_t most) const {
  const auto found = pairs().find(key);
  if (found == values_.end()) return fallback;
  const std::string what = fmt::format("{} {}:{}", flag_, name_, key);
  const std::size_t value = parse_whole(what, found->second, least);
  if (value > most) fail(ErrorKind::usage, "{}: expected at most {}, got {}", what, most, value);
  return value;
}

std::string Spec::string(const std::string& key, const std::string& fallback) const {
  const auto found = pairs().find(key);
  return found == values_.end() ? fallback : found->second;
}

double Spec::number(const std::string& key, double fallback) const {
  const auto found = pairs().find(key);
  if (found == values_.end()) return fallback;
  const auto value = read_number<double>(found->second);
  if (!value) fail(ErrorKind::usage, "{} {}:{}: expected a number, got '{}'", flag_, name_, key, found->second);
  return *value;
}

void Spec::allow_only(const std::set<std::string>& known) const {
  if (pairs().empty() && text_ != name_)
    fail(ErrorKind::usage, "{}: expected {} after '{}', got '{}'", flag_, known.empty() ? "nothing" : ":KEY=VALUE",
         name_, text_);
  for (const auto& [key, value] : values_) {
    if (known.contains(key)) continue;
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    fail(ErrorKind::usage, "{}: unknown key '{}' in '{}'; {} knows {}{}", flag_, key, text_, name_,
         list.empty() ? "none" : "these: ", list);
  }
}

std::size_t parse_positive(std::string_view flag, std::string_view text) { return parse_whole(flag, text, 1); }
std::size_t parse_count(std::string_view flag, std::string_view text) { return parse_whole(flag, text, 0); }

std::size_t parse_bytes(std::string_view flag, std::string_view text) {
  std::size_t unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const std::string_view suffixes = "KMGT";
    const std::size_t at = suffixes.find(text.back());
    if (at != std::string_view::npos) {
      unit = std::size_t{1} << (10 * (at + 1));
      digits.remove_suffix(1);
    }
  }
  const auto value = read_number<std::size_t>(digits);
  if (!value || *value > std::numeric_limits<std::size_t>::max() / unit)
    fail(ErrorKind::usage, "{}: expected bytes such as 4096, 64K, 25M, got '{}'", flag, text);
  return *value * unit;
}

}  // namespace psring
