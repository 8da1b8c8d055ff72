#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <psring/bench/predict/step_model.h>
#include <psring/common/proc/fault.h>

namespace psring::bench {
namespace {

/// The quantile of the standard normal distribution, by bisection of erfc.
double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Workers by their factor and jitter: how many have both.
using Paces = std::map<std::pair<double, double>, double>;

Paces paces_of(const JobOptions& job) {
  Paces paces;
  for (std::uint32_t rank = 0; rank < job.workers; ++rank) {
    double slow = 1;
    double jitter = 0;
    for (const Fault& fault : faults_of(job.fault, {net::Role::worker, rank})) {
      if (fault.kind == Fault::Kind::slow) slow *= fault.factor;
      if (fault.kind == Fault::Kind::jitter) jitter = fault.factor;
    }
    ++paces[{slow, jitter}];
  }
  return paces;
}

}  // namespace

double expected_slowest(std::size_t n, double deviation) {
  if (n <= 1 || deviation <= 0) return 1;
  constexpr double kBlom = 0.375;
  const auto count = static_cast<double>(n);
  return 1 + deviation * normal_quantile((count - kBlom) / (count - 2 * kBlom + 1));
}

double expected_slowest(const JobOptions& job) {
  if (job.fault.empty()) return 1;
  const Paces paces = paces_of(job);
  double most = 0;
  for (const auto& [pace, count] : paces) most = std::max(most, pace.first * (1 + pace.second));
  constexpr int kParts = 4000;  // of the integral; its error is below most / kParts
  double sum = 0;
  for (int i = 0; i < kParts; ++i) {
    const double x = most * (i + 0.5) / kParts;
    double all_faster = 1;
    for (const auto& [pace, count] : paces) {
      const double least = pace.first * (1 - pace.second);
      const double width = 2 * pace.first * pace.second;
      const double faster = width > 0 ? std::clamp((x - least) / width, 0.0, 1.0) : x < least ? 0.0 : 1.0;
      all_faster *= std::pow(faster, count);
    }
    sum += 1 - all_faster;
  }
  return sum * most / kParts;
}

}  // namespace psring::bench
