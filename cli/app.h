#pragma once

#include <functional>
#include <utility>

#include <psring/common/base/text/registry.h>
#include <psring/optim/optimizers.h>
#include <psring/server/aggregator.h>
#include <psring/worker/registries.h>

namespace psring {

/// A program of psring: the registries of all names that its command line knows, and the command line.
/// A program that adds its own model, data set, strategy, optimizer or aggregation rule brings it to every
/// process of a job, because roles are started by executing the running binary again.
///
///   int main(int argc, char** argv) {
///     psring::App app;
///     app.models().add("mine", "an example", make_mine);
///     return app.run(argc, argv);
///   }
class App {
 public:
  App();

  Registry<worker::Model>& models() { return workers_.models; }
  worker::DatasetRegistry& datasets() { return workers_.datasets; }
  Registry<worker::StrategyKind>& strategies() { return workers_.strategies; }
  optim::OptimizerRegistry& optimizers() { return optimizers_; }
  Registry<optim::RowRule>& row_rules() { return optimizers_.rows; }  ///< see also optim::KvHandle
  Registry<server::Aggregator>& aggregators() { return aggregators_; }

  /// Calls `callback` in each worker after each step; see StepContext. Figures that it records are in metrics.jsonl.
  void on_step(worker::StepCallback callback) { workers_.step_callbacks.push_back(std::move(callback)); }

  const worker::Registries& worker_registries() const { return workers_; }
  const optim::OptimizerRegistry& optimizers() const { return optimizers_; }
  const Registry<server::Aggregator>& aggregators() const { return aggregators_; }

  /// Runs the command line and returns the exit status; errors are one line on stderr. Never throws.
  int run(int argc, char** argv) const noexcept;
  /// Calls `body`, and turns an exception into one line on stderr and an exit status.
  static int guard(const std::function<int()>& body) noexcept;

 private:
  worker::Registries workers_;
  optim::OptimizerRegistry optimizers_;
  Registry<server::Aggregator> aggregators_;
};

}  // namespace psring
