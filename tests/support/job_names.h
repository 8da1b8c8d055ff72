#pragma once

#include <psring/view/step/simulated_job.h>

namespace psring::test {

/// The built-in names that a simulated job's options resolve.
struct BuiltInNames {
  BuiltInNames() {
    worker::register_builtins(workers);
    optim::register_builtin_optimizers(optimizers);
    server::register_builtin_aggregators(aggregators);
  }
  view::JobNames of_job() const { return {workers, optimizers, aggregators}; }

  worker::Registries workers;
  optim::OptimizerRegistry optimizers;
  Registry<server::Aggregator> aggregators;
};

/// One set for all jobs of a program.
inline const BuiltInNames& built_in_names() {
  static const BuiltInNames names;
  return names;
}

}  // namespace psring::test
