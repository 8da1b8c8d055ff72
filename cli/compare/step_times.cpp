#include <algorithm>

#include <psring/cli/compare/comparison.h>
#include <psring/cli/compare/step_times.h>
#include <psring/common/base/median.h>

namespace psring::cli {
namespace {

double median_of(const std::vector<WorkerTimes>& workers, double WorkerTimes::*figure) {
  std::vector<double> values;
  for (const WorkerTimes& worker : workers) values.push_back(worker.*figure);
  return median(std::move(values));
}

}  // namespace

void add_worker_times(StepFigures& step, const std::vector<std::vector<WorkerTimes>>& runs) {
  std::vector<WorkerTimes> workers;  // by rank
  for (std::size_t rank = 0; std::ranges::all_of(runs, [&](const auto& run) { return rank < run.size(); }); ++rank) {
    if (runs.empty()) return;
    std::vector<WorkerTimes> own;
    std::vector<double> delays;
    for (const std::vector<WorkerTimes>& run : runs) {
      own.push_back(run[rank]);
      if (run[rank].run_delay) delays.push_back(*run[rank].run_delay);
    }
    workers.push_back({.busy_s = median_of(own, &WorkerTimes::busy_s),
                       .exposed_s = median_of(own, &WorkerTimes::exposed_s),
                       .delay_s = median_of(own, &WorkerTimes::delay_s),
                       .run_delay = delays.empty() ? std::nullopt : std::optional(median(delays))});
  }
  if (workers.empty()) return;
  const auto slowest = std::ranges::max_element(workers, {}, &WorkerTimes::busy_s);
  step.slowest = static_cast<std::size_t>(slowest - workers.begin());
  step.slowest_busy_s = slowest->busy_s;
  step.slowest_delay_s = slowest->delay_s;
  for (const WorkerTimes& worker : workers)
    if (worker.run_delay) step.run_delay = std::max(step.run_delay.value_or(0), *worker.run_delay);
  workers.erase(slowest);
  if (workers.empty()) return;
  step.others_busy_s = median_of(workers, &WorkerTimes::busy_s);
  step.others_exposed_s = median_of(workers, &WorkerTimes::exposed_s);
}

}  // namespace psring::cli
