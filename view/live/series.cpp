#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include <psring/view/live/series.h>

namespace psring::view {

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
