#pragma once

#include <cstddef>
#include <vector>

#include <psring/bench/report.h>
#include <psring/common/base/events/events.h>

namespace psring::bench {

/// Collects the times of the counted steps, and the losses of all steps.
class StepObserver final : public ReportListener {
 public:
  explicit StepObserver(std::size_t warm_up) : warm_up_(warm_up) {}
  void on_step(const StepReport& report) override {
    losses.push_back(report.loss);
    if (report.step < warm_up_) return;
    steps.values.push_back(seconds(report.duration));
    exposed.values.push_back(seconds(report.exposed));
  }
  void on_evaluation(const Evaluation&) override {}

  Samples steps;
  Samples exposed;
  std::vector<double> losses;

 private:
  std::size_t warm_up_;
};

}  // namespace psring::bench
