#pragma once

#include <algorithm>
#include <vector>

namespace psring::view {

/// A span of time on one clock.
struct Interval {
  double begin = 0;
  double end = 0;
};

/// Returns the intervals in order, those that overlap joined.
inline std::vector<Interval> joined(std::vector<Interval> list) {
  std::sort(list.begin(), list.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> result;
  for (const Interval& one : list) {
    if (!result.empty() && one.begin <= result.back().end)
      result.back().end = std::max(result.back().end, one.end);
    else
      result.push_back(one);
  }
  return result;
}

inline double total(const std::vector<Interval>& list) {
  double sum = 0;
  for (const Interval& one : list) sum += one.end - one.begin;
  return sum;
}

/// Returns the time that lies in both. REQUIRES: both are in order, and without overlap.
inline double common_time(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

/// Returns the parts of `a` that lie in no interval of `b`. REQUIRES: both are in order, and without overlap.
inline std::vector<Interval> without(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> result;
  for (Interval rest : a) {
    for (const Interval& cut : b) {
      if (cut.end <= rest.begin || cut.begin >= rest.end) continue;
      if (cut.begin > rest.begin) result.push_back({rest.begin, cut.begin});
      rest.begin = cut.end;
    }
    if (rest.begin < rest.end) result.push_back(rest);
  }
  return result;
}

/// Returns the parts that lie within `window`.
inline std::vector<Interval> clipped(const std::vector<Interval>& list, const Interval& window) {
  std::vector<Interval> result;
  for (const Interval& one : list) {
    const Interval part{std::max(one.begin, window.begin), std::min(one.end, window.end)};
    if (part.begin < part.end) result.push_back(part);
  }
  return result;
}

}  // namespace psring::view
