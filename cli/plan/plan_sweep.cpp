#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>

#include <psring/cli/plan/plan_sweep.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

/// The options on which a plan depends, of the plan and of the job.
constexpr std::array kSwept{"hosts",    "workers-per-host", "link-within",  "link-between", "tflops",     "memory",
                            "model",    "servers",          "global-batch", "batch-size",   "accumulate", "bucket",
                            "prefetch", "shard-group",      "compress",     "precision",    "optimizer",  "units"};
constexpr std::size_t kMostValues = 64;

/// A number and the text after it.
struct Measure {
  double number = 0;
  std::string_view unit;
};

std::optional<Measure> measure_of(std::string_view text) {
  Measure measure;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), measure.number);
  if (error != std::errc{} || !(measure.number > 0)) return std::nullopt;
  measure.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return measure;
}

/// The number with its unit, such as 1048576 for 1M; a link's delay does not count. Nothing if the unit is unknown.
std::optional<double> position_of(std::string_view text) {
  const auto measure = measure_of(text.substr(0, text.find(',')));
  if (!measure) return std::nullopt;
  std::string unit(measure->unit);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::tolower(c); });
  if (unit.empty() || unit == "b" || unit == "bit") return measure->number;
  const double base = unit.ends_with("bit") ? 1000 : 1024;
  if (const std::string_view rest = std::string_view(unit).substr(1); !rest.empty() && rest != "bit")
    return std::nullopt;
  const std::size_t power = std::string_view("kmgt").find(unit.front());
  if (power == std::string_view::npos) return std::nullopt;
  return measure->number * std::pow(base, static_cast<double>(power + 1));
}

/// "1..512", "1M..64M": the numbers double, the unit stays.
std::optional<std::vector<std::string>> doubling(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto least = measure_of(text.substr(0, dots));
  const auto most = measure_of(text.substr(dots + 2));
  std::vector<std::string> values;
  if (!least || !most || least->unit != most->unit) return values;
  for (double value = least->number; value <= most->number && values.size() <= kMostValues; value *= 2)
    values.push_back(fmt::format("{}{}", value, least->unit));
  return values;
}

}  // namespace

std::vector<double> PlanSweep::positions() const {
  std::vector<double> list;
  for (const std::string& value : values) {
    const auto position = position_of(value);
    if (!position || (!list.empty() && *position <= list.back())) break;
    list.push_back(*position);
  }
  if (list.size() < values.size()) {
    list.clear();
    for (std::size_t i = 0; i < values.size(); ++i) list.push_back(static_cast<double>(i));
  }
  return list;
}

PlanSweep parse_plan_sweep(const std::string& text) {
  const std::size_t equals = text.find('=');
  PlanSweep sweep{text.substr(0, equals), {}};
  const bool known = std::ranges::find(kSwept, sweep.name) != kSwept.end();
  if (equals != std::string::npos && known) {
    const std::string values = text.substr(equals + 1);
    sweep.values = doubling(values).value_or(split(values, values.find(';') == std::string::npos ? ',' : ';'));
  }
  if (sweep.values.empty() || sweep.values.size() > kMostValues || std::ranges::count(sweep.values, "") > 0)
    fail(
        ErrorKind::usage,
        "--sweep: expected up to {} values such as hosts=1..512, servers=1,4 or link-between=1gbit,1ms;10gbit,20us, of "
        "{}, got '{}'",
        kMostValues, fmt::join(kSwept, ", "), text);
  return sweep;
}

}  // namespace psring::cli
