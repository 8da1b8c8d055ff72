#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <psring/view/lag.h>

namespace psring::view {
namespace {

constexpr std::size_t kMostPoints = 200;

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
  const std::size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
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

}  // namespace psring::view
