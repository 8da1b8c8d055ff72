#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/view/records.h>
#include <psring/view/series.h>

namespace psring::view {
namespace {

constexpr std::size_t kMostLagPoints = 200;

using Steps = std::vector<StepEnd>;                            ///< of one worker, in order
using Points = std::vector<std::pair<double, std::uint64_t>>;  ///< time and lag

/// Makes all times count from the begin of each worker's first step.
void align(std::map<std::uint64_t, Steps>& workers) {
  for (auto& [worker, own] : workers) {
    std::sort(own.begin(), own.end(), [](const StepEnd& a, const StepEnd& b) { return a.step < b.step; });
    const double begin = own.front().time_s - own.front().step_s;
    for (StepEnd& end : own) end.time_s -= begin;
  }
}

/// Adds the points of one membership, whose times begin with `begin`. Returns the time of its last end.
double add_points(std::map<std::uint64_t, Steps>& workers, double begin, std::map<std::uint64_t, Points>& points) {
  align(workers);
  Steps all;
  std::map<std::uint64_t, std::uint64_t> made;  ///< by worker, its next step
  for (const auto& [worker, own] : workers) {
    made[worker] = own.front().step;
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end(), [](const StepEnd& a, const StepEnd& b) { return a.time_s < b.time_s; });
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (const StepEnd& end : all) {
    const std::uint64_t slowest = std::min_element(made.begin(), made.end(), fewer)->second;
    points[end.worker].emplace_back(begin + end.time_s, end.step - std::min(end.step, slowest));
    made[end.worker] = end.step + 1;
  }
  return begin + all.back().time_s;
}

Json columns_of(const Points& points) {
  Json columns = {{"time_s", Json::array()}, {"lag", Json::array()}};
  const std::size_t group = (points.size() + kMostLagPoints - 1) / kMostLagPoints;
  for (std::size_t first = 0; first < points.size(); first += group) {
    const std::size_t end = std::min(first + group, points.size());
    std::uint64_t most = 0;
    for (std::size_t i = first; i < end; ++i) most = std::max(most, points[i].second);
    columns["time_s"].push_back(std::round(points[end - 1].first * 1e6) / 1e6);
    columns["lag"].push_back(most);
  }
  return columns;
}

}  // namespace

Json lag_columns(const std::vector<StepEnd>& ends) {
  std::map<std::uint64_t, std::map<std::uint64_t, Steps>> memberships;
  for (const StepEnd& end : ends) memberships[end.membership][end.worker].push_back(end);
  std::map<std::uint64_t, Points> points;
  double begin = 0;
  for (auto& [membership, workers] : memberships) begin = add_points(workers, begin, points);
  Json columns = Json::object();
  for (const auto& [worker, own] : points) columns[fmt::format("worker {}", worker)] = columns_of(own);
  return columns;
}

namespace {

constexpr std::size_t kMostPoints = 400;
constexpr std::size_t kMostStalenessPoints = 200;
constexpr std::size_t kMostMemoryPoints = 100;

/// Six digits are more than a picture shows. Null for NaN and infinity, which JSON cannot hold.
Json short_number(double value) {
  if (!std::isfinite(value)) return {};
  return Json::parse(fmt::format("{:.6g}", value));
}

/// A figure that a run may have written as null, because it was not finite.
double number_of(const Json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

struct StepLine {
  std::uint64_t membership = 0;
  double time_s = 0;
  double step_s = 0;
  double loss = 0;
  double samples = 0;
  double staleness = 0;
};

struct Evaluation {
  std::uint64_t membership = 0;
  double time_s = 0;
  double loss = 0;
  double rows = 0;
  std::optional<double> correct;
  bool text = false;
  std::map<std::string, double> own;  ///< "test_NAME": a metric of the model itself
};

template <class Line>
using ByStep = std::map<std::uint64_t, std::map<std::uint64_t, Line>>;  ///< by step, by worker

template <class Line>
void keep(ByStep<Line>& lines, const Json& json, Line line) {
  line.membership = json.value("membership", std::uint64_t{0});
  line.time_s = json.at("time_s").get<double>();
  auto& own = lines[json.at("step").get<std::uint64_t>()];
  // A later membership repeats the step, maybe with fewer workers.
  if (!own.empty() && own.begin()->second.membership < line.membership) own.clear();
  if (!own.empty() && own.begin()->second.membership > line.membership) return;
  own[json.at("worker").get<std::uint64_t>()] = line;
}

/// Times of a run as one process sees them begin again with every part of the run; this continues them.
class Elapsed {
 public:
  double at(double time_s) {
    if (time_s + offset_ < last_) offset_ = last_;
    return last_ = time_s + offset_;
  }

 private:
  double offset_ = 0;
  double last_ = 0;
};

template <class Lines>
double latest(const Lines& workers) {
  double time = 0;
  for (const auto& [worker, line] : workers) time = std::max(time, line.time_s);
  return time;
}

struct Point {
  std::uint64_t step = 0;
  double time_s = 0;
  double loss = 0;
};

std::vector<Point> points_of(const ByStep<StepLine>& steps) {
  std::vector<Point> points;
  Elapsed elapsed;
  for (const auto& [step, workers] : steps) {
    double loss = 0;
    double samples = 0;
    for (const auto& [worker, line] : workers) {
      loss += line.samples > 0 ? line.loss * line.samples : 0;
      samples += line.samples;
    }
    points.push_back({step, elapsed.at(latest(workers)), samples > 0 ? loss / samples : std::nan("")});
  }
  return points;
}

double begin_of(const ByStep<StepLine>& steps) {
  if (steps.empty()) return 0;
  double duration = 0;
  for (const auto& [worker, line] : steps.begin()->second) duration = std::max(duration, line.step_s);
  return latest(steps.begin()->second) - duration;
}

Json loss_columns(const std::vector<Point>& points, double begin) {
  Json columns = {
      {"step", Json::array()}, {"time_s", Json::array()}, {"loss", Json::array()}, {"steps", points.size()}};
  const std::size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t first = 0; first < points.size(); first += group) {
    const std::size_t end = std::min(first + group, points.size());
    double loss = 0;
    for (std::size_t i = first; i < end; ++i) loss += points[i].loss;
    columns["step"].push_back(points[end - 1].step);
    columns["time_s"].push_back(short_number(points[end - 1].time_s - begin));
    columns["loss"].push_back(short_number(loss / static_cast<double>(end - first)));
  }
  return columns;
}

Json staleness_columns(const ByStep<StepLine>& steps) {
  std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, double>>> workers;
  bool some = false;
  for (const auto& [step, own] : steps)
    for (const auto& [worker, line] : own) {
      workers[worker].emplace_back(step, line.staleness);
      some = some || line.staleness > 0;
    }
  if (!some) return {};
  Json columns;
  for (const auto& [worker, points] : workers) {
    Json own = {{"step", Json::array()}, {"staleness", Json::array()}};
    const std::size_t group = (points.size() + kMostStalenessPoints - 1) / kMostStalenessPoints;
    for (std::size_t first = 0; first < points.size(); first += group) {
      const std::size_t end = std::min(first + group, points.size());
      double sum = 0;
      for (std::size_t i = first; i < end; ++i) sum += points[i].second;
      own["step"].push_back(points[end - 1].first);
      own["staleness"].push_back(short_number(sum / static_cast<double>(end - first)));
    }
    columns[fmt::format("worker {}", worker)] = std::move(own);
  }
  return columns;
}

Json lag_of(const ByStep<StepLine>& steps) {
  std::vector<StepEnd> ends;
  for (const auto& [step, own] : steps)
    for (const auto& [worker, line] : own) ends.push_back({line.membership, worker, step, line.time_s, line.step_s});
  return lag_columns(ends);
}

Json evaluation_columns(const ByStep<Evaluation>& evaluations, double begin) {
  Json columns;
  for (const char* name : {"step", "time_s", "test_loss", "test_accuracy", "test_perplexity"})
    columns[name] = Json::array();
  std::set<std::string> metrics;
  for (const auto& [step, workers] : evaluations)
    for (const auto& [worker, line] : workers)
      for (const auto& [name, mean] : line.own)
        if (!columns.contains(name)) metrics.insert(name);
  for (const std::string& name : metrics) columns[name] = Json::array();
  Elapsed elapsed;
  for (const auto& [step, workers] : evaluations) {
    Evaluation sum;
    for (const auto& [worker, line] : workers) {
      sum.loss += line.rows > 0 ? line.loss * line.rows : 0;
      sum.rows += line.rows;
      if (line.correct) sum.correct = sum.correct.value_or(0) + *line.correct;
      sum.text = sum.text || line.text;
      for (const auto& [name, mean] : line.own) sum.own[name] += mean * line.rows;
    }
    if (sum.rows == 0) continue;
    columns["step"].push_back(step);
    columns["time_s"].push_back(short_number(elapsed.at(latest(workers)) - begin));
    columns["test_loss"].push_back(short_number(sum.loss / sum.rows));
    columns["test_accuracy"].push_back(sum.correct ? short_number(*sum.correct / sum.rows) : Json());
    columns["test_perplexity"].push_back(sum.text ? short_number(std::exp(sum.loss / sum.rows)) : Json());
    for (const std::string& name : metrics)
      columns[name].push_back(sum.own.contains(name) ? short_number(sum.own[name] / sum.rows) : Json());
  }
  return columns;
}

struct MemoryPoint {
  double time_s = 0;
  double booked = 0;
  // Empty if the system does not tell, and for a server within a worker's process.
  std::optional<double> rss;
  std::optional<double> pss;
};

std::optional<double> number_in(const Json& line, const char* name) {
  return line.contains(name) && line[name].is_number() ? std::optional(line[name].get<double>()) : std::nullopt;
}

Json whole_number(const std::optional<double>& value) {
  return value ? Json(static_cast<std::uint64_t>(*value)) : Json();
}

MemoryPoint memory_point(const Json& line) {
  MemoryPoint point{.time_s = line.at("time_s").get<double>()};
  for (const auto& [name, value] : line.items())
    if (value.is_object() && value.contains("current")) point.booked += value["current"].get<double>();
  point.rss = number_in(line, "rss");
  point.pss = number_in(line, "pss");
  return point;
}

Json memory_columns(const std::vector<MemoryPoint>& points, double begin) {
  Json columns;
  const std::size_t group = (points.size() + kMostMemoryPoints - 1) / kMostMemoryPoints;
  for (std::size_t first = 0; first < points.size(); first += group) {
    MemoryPoint most = points[first];
    for (std::size_t i = first; i < std::min(first + group, points.size()); ++i) {
      most.booked = std::max(most.booked, points[i].booked);
      most.rss = std::max(most.rss, points[i].rss);  // nothing is less than any number
      most.pss = std::max(most.pss, points[i].pss);
    }
    columns["time_s"].push_back(short_number(most.time_s - begin));
    columns["booked"].push_back(static_cast<std::uint64_t>(most.booked));
    columns["rss"].push_back(whole_number(most.rss));
    columns["pss"].push_back(whole_number(most.pss));
  }
  return columns;
}

}  // namespace

Json metrics_series(const std::filesystem::path& file) {
  ByStep<StepLine> steps;
  ByStep<Evaluation> evaluations;
  for_each_line(file, [&](const Json& json) {
    if (json.contains("loss")) {
      keep(steps, json,
           {.step_s = json.at("step_s").get<double>(),
            .loss = number_of(json["loss"]),
            .samples = json.at("samples").get<double>(),
            .staleness = json.value("staleness", 0.0)});
    } else if (json.contains("test_rows")) {
      Evaluation line{.loss = number_of(json.at("test_loss")), .rows = json["test_rows"].get<double>()};
      if (json.contains("test_correct")) line.correct = json["test_correct"].get<double>();
      line.text = json.contains("test_perplexity");
      if (json.contains("own"))
        for (const auto& [name, mean] : json["own"].items())
          if (name.starts_with("test_")) line.own[name] = number_of(mean);
      keep(evaluations, json, line);
    }
  });
  const double begin = begin_of(steps);
  Json staleness = staleness_columns(steps);
  Json lag = staleness.is_null() ? Json() : lag_of(steps);  // otherwise no worker may run ahead
  return {{"loss", loss_columns(points_of(steps), begin)},
          {"staleness", std::move(staleness)},
          {"lag", std::move(lag)},
          {"evaluations", evaluation_columns(evaluations, begin)}};
}

Json memory_series(const std::filesystem::path& file) {
  std::map<std::string, std::vector<MemoryPoint>> processes;
  std::optional<double> begin;
  for_each_line(file, [&](const Json& json) {
    const MemoryPoint point = memory_point(json);
    begin = std::min(begin.value_or(point.time_s), point.time_s);
    processes[fmt::format("{} {}", json.at("role").get<std::string>(), json.at("rank").get<std::uint64_t>())].push_back(
        point);
  });
  Json series = Json::object();
  for (const auto& [process, points] : processes) series[process] = memory_columns(points, *begin);
  return series;
}

}  // namespace psring::view
