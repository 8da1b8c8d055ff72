#include <cmath>
#include <map>

#include <psring/cli/plan/plan_crossings.h>

namespace psring::cli {
namespace {

constexpr double kEqual = 1e-3;  ///< curves that are closer are equal: they do not cross

double value_of(const PlanRow& row, PlanCrossing::Of of) {
  return of == PlanCrossing::Of::step_s ? row.step.step_s : row.per_host();
}

using Curve = std::map<std::string, double>;  ///< values at one point, by series

Curve values_at(const PlanPoint& point, PlanCrossing::Of of) {
  Curve values;
  for (const PlanRow& row : point.plan.rows)
    for (const std::string& name : row.series) values.try_emplace(name, value_of(row, of));
  return values;
}

void add(std::vector<PlanCrossing>& found, const std::vector<PlanPoint>& points, std::size_t at, PlanCrossing::Of of) {
  const Curve here = values_at(points[at], of);
  const Curve there = values_at(points[at + 1], of);
  for (auto a = here.begin(); a != here.end(); ++a)
    for (auto b = std::next(a); b != here.end(); ++b) {
      if (!there.contains(a->first) || !there.contains(b->first)) continue;
      const double begin = std::log(a->second / b->second);
      const double end = std::log(there.at(a->first) / there.at(b->first));
      if (begin * end >= 0 || std::abs(begin) < kEqual || std::abs(end) < kEqual) continue;
      const double share = begin / (begin - end);
      const auto between = [&](double from, double to) {
        return from > 0 ? from * std::pow(to / from, share) : from + (to - from) * share;
      };
      const bool a_is_less = begin < 0;
      const bool a_is_better = of == PlanCrossing::Of::step_s ? a_is_less : !a_is_less;
      found.push_back({of, a_is_better ? a->first : b->first, a_is_better ? b->first : a->first, at,
                       between(points[at].x, points[at + 1].x), between(a->second, there.at(a->first))});
    }
}

}  // namespace

std::vector<PlanCrossing> find_crossings(const std::vector<PlanPoint>& points) {
  std::vector<PlanCrossing> found;
  for (const auto of : {PlanCrossing::Of::step_s, PlanCrossing::Of::per_host})
    for (std::size_t at = 0; at + 1 < points.size(); ++at) add(found, points, at, of);
  return found;
}

}  // namespace psring::cli
