#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/proc/job.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/model.h>
#include <psring/worker/registries.h>

namespace psring::worker {

/// Layout::piece_elements of a job. On a shaped link a piece is as large as the link carries in 5 ms: a step ends with
/// the answers to its last piece, so that pieces are small on a slow link.
std::size_t piece_elements(const JobOptions& job);

/// The model, data, strategy and optimizer that a job's options name, before anything runs. The launcher makes it to
/// check the options, a worker to train.
class TrainSetup {
 public:
  enum class Samples : std::uint8_t {
    real,
    planned  ///< data of the right shape that cannot be read, for predictions
  };
  /// Throws usage or data, naming the flag or the file.
  TrainSetup(const JobOptions& job, const Registries& registries, const optim::OptimizerRegistry& optimizers,
             Samples samples = Samples::real);

  const JobOptions& job() const { return job_; }
  const StrategyKind& strategy() const { return *strategy_; }
  const Model& model() const { return *model_; }
  const FlatModel& flat() const { return *flat_; }
  const DataSplit& data() const { return data_; }
  std::span<const StepCallback> step_callbacks() const { return step_callbacks_; }
  /// Sets the number of workers, which share the global batch: after a loss it may be smaller than at the beginning.
  void share_among(std::size_t workers);
  /// Divides units among `owners`, if the options alone do not give the number (--shard-group host).
  void cut_among(std::size_t owners);
  const Layout& layout() const { return layout_; }
  /// The layout of all layers' buffers.
  const UnitLayout& buffers() const { return buffers_; }
  /// The tensors that a file of initial values has to hold.
  std::vector<TensorSpec> tensor_specs() const;
  /// --steps, or the number of steps in --epochs.
  std::uint64_t steps() const { return steps_; }
  std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The checkpoint that the run continues from (--resume); null: the run begins anew.
  const std::shared_ptr<const optim::Checkpoint>& saved() const { return saved_; }
  OptimizerPlan optimizer() const {
    return {optimizer_.get(), schedule_.get(), lr_, job_.clip_norm, job_.master_copy, scaler_};
  }

 private:
  JobOptions job_;
  std::unique_ptr<StrategyKind> strategy_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<FlatModel> flat_;
  DataSplit data_;
  std::vector<StepCallback> step_callbacks_;
  Layout layout_;
  UnitLayout buffers_;
  std::uint64_t steps_ = 0;
  std::uint64_t steps_per_epoch_ = 0;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Schedule> schedule_;
  double lr_ = 0;
  optim::LossScaler scaler_;
  std::shared_ptr<const optim::Checkpoint> saved_;  ///< shared with functions that read from it
};

}  // namespace psring::worker
