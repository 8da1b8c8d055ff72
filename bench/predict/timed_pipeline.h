#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <psring/bench/predict/planned_worker.h>

namespace psring::bench {

/// One worker of each stage: they stand for the workers of all copies of the model and of all tensor ranks, which do
/// the same at the same times. A job without a pipeline has one stage.
class TimedPipeline {
 public:
  /// Arguments outlive the pipeline. `stages`: their work.
  TimedPipeline(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                const Mesh& mesh, const HostCosts& costs, const ComputePace& pace);
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
