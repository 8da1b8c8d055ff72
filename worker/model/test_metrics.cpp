#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include <psring/worker/model/test_metrics.h>

namespace psring::worker {

double area_under_curve(std::span<const float> outputs, std::span<const std::int32_t> classes) {
  std::vector<std::uint32_t> order(outputs.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return outputs[a] < outputs[b]; });
  double pairs = 0;  // that are in order; a half is exact
  std::uint64_t zeros = 0;
  std::uint64_t ones = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    std::uint64_t equal[2] = {};
    for (; end < order.size() && outputs[order[end]] == outputs[order[begin]]; ++end)
      ++equal[classes[order[end]] == 0 ? 0 : 1];
    pairs += static_cast<double>(equal[1]) * (static_cast<double>(zeros) + static_cast<double>(equal[0]) / 2);
    zeros += equal[0];
    ones += equal[1];
    begin = end;
  }
  return zeros == 0 || ones == 0 ? 0.5 : pairs / (static_cast<double>(zeros) * static_cast<double>(ones));
}

Metric make_auc() {
  return {.name = "auc", .sum = {}, .of_all = [](std::span<const float> outputs, const Targets& targets) {
            return area_under_curve(outputs, targets.classes);
          }};
}

Metric make_root_mean_square() {
  return {.name = "rmse", .sum = {}, .of_all = [](std::span<const float> outputs, const Targets& targets) {
            double sum = 0;
            for (std::size_t i = 0; i < outputs.size(); ++i) {
              const double error = static_cast<double>(outputs[i]) - static_cast<double>(targets.values.data[i]);
              sum += error * error;
            }
            return outputs.empty() ? 0 : std::sqrt(sum / static_cast<double>(outputs.size()));
          }};
}

}  // namespace psring::worker
