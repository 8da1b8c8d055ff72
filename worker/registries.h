#pragma once

#include <memory>
#include <string>
#include <vector>

#include <psring/common/base/text/registry.h>
#include <psring/common/proc/job.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/model/model.h>
#include <psring/worker/model/parallel/tensor_part.h>
#include <psring/worker/step_callback.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::worker {

/// The names that a worker knows. The App owns them; a user's are added like the built-in ones.
struct Registries {
  Registry<Model> models;
  /// For --tensor: makes one part of a model; a model without an entry of its name has no tensor-parallel form.
  Registry<Model, const TensorPart&> tensor_models = {};
  DatasetRegistry datasets;
  Registry<StrategyKind> strategies;
  std::vector<StepCallback> step_callbacks = {};  ///< called in the order in which they were added
};

void register_builtins(Registries& registries);

/// Returns the kind of a strategy, as it trains a model: if the model has tables, and the workers share dense
/// parameters among themselves, then servers have the tables' rows. Throws usage, naming `flag` or --model.
std::unique_ptr<StrategyKind> make_strategy_kind(const Registries& registries, const char* flag,
                                                 const std::string& strategy, const std::string& model);

}  // namespace psring::worker
