#include <cmath>
#include <type_traits>
#include <variant>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/table.h>

namespace psring::options {
namespace {

template <class Value>
const Value& value_of(const JobOptions& job, const Option& option) {
  return job.*std::get<Value JobOptions::*>(option.field);
}

/// Checks one value. An optional value that is not set passes, and so does an empty text.
struct Checker {
  const JobOptions& job;
  const Option& option;
  const std::string flag = std::string("--") + option.name;

  void operator()(std::monostate) const {}

  void operator()(const OneOf& words) const {
    const auto& text = value_of<std::string>(job, option);
    if (text != words.first && text != words.second)
      fail(ErrorKind::usage, "{}: expected {} or {}, got '{}'", flag, words.first, words.second, text);
  }
  void operator()(const CountUpTo& range) const {
    if (const auto value = whole()) check_count(flag, *value, range.most);
  }
  void operator()(const AtMost& range) const {
    const auto value = whole();
    if (!value || *value <= range.most) return;
    if (range.expected != nullptr) fail(ErrorKind::usage, "{}: expected {}, got {}", flag, range.expected, *value);
    fail(ErrorKind::usage, "{}: expected a number up to {}, got {}", flag, range.most, *value);
  }
  void operator()(const Seconds& range) const { check_duration(flag, value_of<double>(job, option), range.least); }
  void operator()(Positive) const {
    const auto& value = value_of<std::optional<double>>(job, option);
    if (value && !(*value > 0 && std::isfinite(*value)))
      fail(ErrorKind::usage, "{}: expected a number > 0, got {:g}", flag, *value);
    if (value && *value < 1) check_f32(flag, *value);  // too large a rate shows itself
  }
  void operator()(NotNegative) const {
    const double value = value_of<double>(job, option);
    if (!(value >= 0 && std::isfinite(value)))
      fail(ErrorKind::usage, "{}: expected a number >= 0, got {:g}", flag, value);
    if (value < 1) check_f32(flag, value);
  }
  void operator()(const Parses& parser) const {
    if (const auto& text = value_of<std::string>(job, option); !text.empty()) parser.parse(text);
  }

 private:
  std::optional<std::uint64_t> whole() const {
    if (std::holds_alternative<std::size_t JobOptions::*>(option.field)) return value_of<std::size_t>(job, option);
    return value_of<std::optional<std::uint64_t>>(job, option);
  }
};

}  // namespace

void check_count(std::string_view flag, std::size_t value, std::size_t most) {
  if (value == 0) fail(ErrorKind::usage, "{}: expected a number > 0", flag);
  if (value > most) fail(ErrorKind::usage, "{}: expected a number up to {}, got {}", flag, most, value);
}

void check_f32(std::string_view flag, double value) {
  const auto rounded = static_cast<float>(value);
  if (!std::isfinite(rounded) || (rounded == 0 && value != 0))
    fail(ErrorKind::usage, "{}: expected 0, or a size from 1.4e-45 to 3.4e+38, which f32 holds, got {:g}", flag, value);
}

void check_duration(std::string_view flag, double value, double least) {
  constexpr double kYear = 365.0 * 86400;
  if (!(value >= least && value <= kYear))
    fail(ErrorKind::usage, "{}: expected seconds from {:g} to {:g}, got {:g}", flag, least, kYear, value);
}

bool differs(const JobOptions& job, const JobOptions& plain, const Option& option) {
  return std::visit(
      [&](const auto& member) {
        if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::monostate>)
          return false;
        else if constexpr (requires { (job.*member).has_value(); })
          return (job.*member).has_value() && job.*member != plain.*member;
        else
          return job.*member != plain.*member;
      },
      option.field);
}

void check_in_programs(const JobOptions& job, const JobOptions& plain) {
  for (const Option* const option : recorded()) {
    const bool has_effect =
        option->in_programs == InPrograms::yes || (option->in_programs == InPrograms::with_servers && job.servers > 0);
    if (differs(job, plain, *option) && !has_effect)
      fail(ErrorKind::usage, "--{}: has no effect on a program that trains by itself{}", option->name,
           option->in_programs == InPrograms::with_servers ? ", without servers" : "");
  }
}

void check(const JobOptions& job, const Option& option) {
  std::visit(Checker{.job = job, .option = option}, option.check);
}

}  // namespace psring::options
