#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <psring/bench/cost/planned_worker.h>

namespace psring::bench {

/// A step of a job without servers, in steady state.
struct TimedPeriod {
  double step_s = 0;
  std::array<double, static_cast<std::size_t>(StepStation::count)> busy_s{};  ///< of the stage with the most
  std::vector<double> waited_s;  ///< by stage: for messages of the stages before and after
};

/// One worker of each stage: they stand for the workers of all copies of the model and of all tensor ranks, which do
/// the same at the same times. A job without a pipeline has one stage.
class TimedPipeline {
 public:
  /// Arguments outlive the pipeline. `stages`: their work.
  TimedPipeline(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                const Mesh& mesh, const HostCosts& costs, const Pacing& pacing);
  ~TimedPipeline();

  /// Plays some steps of all stages: each acts in the order of its plan (worker::plan_stage), and waits for the
  /// messages of its neighbours. Returns the step time in steady state.
  TimedPeriod play();

 private:
  class Stage;
  struct Boxes;
  std::unique_ptr<Boxes> boxes_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace psring::bench
