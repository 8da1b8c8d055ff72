#include <psring/common/base/text/error.h>
#include <psring/ring/plan/algorithm.h>

namespace psring::ring {

std::string algorithm_names() {
  std::string text;
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i)
    text += (i == 0 ? "" : i + 1 < kAlgorithms.size() ? ", " : " or ") + std::string(kAlgorithms[i]->name);
  return text;
}

Plan plan_all_reduce(const Algorithm& algorithm, const Planner& planner, std::size_t count) {
  return planner.ranks == 1 || count == 0 ? Plan() : algorithm.plan(planner, count);
}

std::size_t latencies(const Algorithm& algorithm, std::size_t ranks) {
  return ranks < 2 ? 0 : algorithm.latencies(ranks);
}

Algorithm parse_algorithm(const char* flag, const std::string& name) {
  for (const Algorithm* algorithm : kAlgorithms)
    if (name == algorithm->name) return *algorithm;
  fail(ErrorKind::usage, "{}: expected auto, direct, {}, got '{}'", flag, algorithm_names(), name);
}

}  // namespace psring::ring
