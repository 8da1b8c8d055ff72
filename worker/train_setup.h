#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/proc/job.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/optimizers.h>
#include <psring/optim/rows/table_rules.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/exchange/mesh/shared_tensors.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/model.h>
#include <psring/worker/model/parallel/tensor_part.h>
#include <psring/worker/registries.h>

namespace psring::worker {

/// Refuses models that no host can hold, before sums of their sizes overflow. Throws data. `layout`: of the whole
/// model.
void check_size(const JobOptions& job, const Layout& layout);

/// Layout::piece_elements of a job. On a shaped link a piece has the size that the link carries in 5 ms. A step ends
/// with the answers to its last piece, so pieces must be small on a slow link. With mixed servers a standalone server's
/// share has at least 64 pieces, because its card is idle until a first piece has come from every worker. REQUIRES:
/// `layout` has its weights.
std::size_t piece_elements(const JobOptions& job, const Layout& layout);

/// A job's model, or one part of each of its layers, and its units, as the options group and freeze the layers.
struct JobModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<FlatModel> flat;

  /// Keeps these layers alone, as one stage of a pipeline does.
  void take_stage(Range layers);
};
/// Throws usage, naming the flag.
JobModel make_job_model(const JobOptions& job, const Registries& registries, const TensorPart& part);

/// The model, data, strategy and optimizer that a job's options name, before anything runs. The launcher makes it to
/// check the options, a worker to train.
class TrainSetup {
 public:
  enum class Samples : std::uint8_t {
    real,
    planned  ///< data of the right shape that cannot be read, for predictions
  };
  /// A description of the whole model, whichever part of it a worker has.
  struct Whole {
    std::vector<TensorSpec> tensors;    ///< of parameters, unit by unit, and of the layers' buffers
    std::vector<bool> trained;          ///< by tensor; false for buffers, too
    std::vector<std::uint32_t> ids;     ///< by tensor: TensorLayout::id
    std::vector<std::size_t> stage_of;  ///< by tensor: the stage that holds it, of several the first
    std::size_t parameters = 0;         ///< the first of `tensors` are parameters, the others buffers
    std::size_t units = 0;
    std::size_t layers = 0;
    std::size_t first_trained_layer = 0;
    std::size_t input_cols = 0;                 ///< of the data set's samples
    std::vector<Range> stages;                  ///< layers of each stage of the pipeline; one if there is none
    std::vector<SharingStages> sharing;         ///< the stages that hold a tensor, where there are several
    std::map<std::string, std::size_t> shared;  ///< tensors of several stages: index in `sharing`
  };

  /// Throws usage or data, naming the flag or the file.
  TrainSetup(const JobOptions& job, const Registries& registries, const optim::OptimizerRegistry& optimizers,
             Samples samples = Samples::real);

  /// Takes the part of the model that the worker of this rank has in the job's mesh: from here on model(), flat(),
  /// layout() and buffers() describe the part. Before this call, and after a call without a rank, they describe the
  /// whole model. REQUIRES: no Training refers to the setup.
  void become(std::optional<JobRank> rank);
  const Whole& whole() const { return whole_; }
  std::size_t stage() const { return stage_; }
  /// This worker's part of each layer, with which the layers of model() sum.
  const TensorPart& tensor_part() const { return tensor_part_; }
  /// The tensors of this part that other stages hold, too.
  std::vector<SharedTensor> shared_tensors() const;

  const JobOptions& job() const { return job_; }
  const StrategyKind& strategy() const { return *strategy_; }
  const Model& model() const { return *made_.model; }
  const FlatModel& flat() const { return *made_.flat; }
  const DataSplit& data() const { return data_; }
  std::span<const StepCallback> step_callbacks() const { return step_callbacks_; }
  /// Sets the number of workers, which share the global batch: after a loss it may be smaller than at the beginning.
  void share_among(std::size_t workers);
  /// Divides units among `owners`, if the options alone do not give the number (--shard-group host).
  void cut_among(std::size_t owners);
  const Layout& layout() const { return layout_; }
  /// The part of the layout that servers own: all of it, or the tables alone.
  Layout served_layout() const;
  /// The layout of all layers' buffers.
  const UnitLayout& buffers() const { return buffers_; }
  /// The tensors of the whole model, which a file of initial values has to hold.
  const std::vector<TensorSpec>& tensor_specs() const { return whole_.tensors; }
  /// --steps, or the number of steps in --epochs.
  std::uint64_t steps() const { return steps_; }
  std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The checkpoint that the run continues from (--resume); null: the run begins anew.
  const std::shared_ptr<const optim::Checkpoint>& saved() const { return saved_; }
  /// How tables' rows are trained.
  RowPlan rows() const { return row_rules_ ? RowPlan{&*row_rules_, schedule_.get()} : RowPlan{}; }
  OptimizerPlan optimizer() const {
    return {optimizer_.get(), schedule_.get(), lr_, job_.clip_norm, job_.master_copy, scaler_};
  }

 private:
  void describe_whole();
  std::size_t owners() const;

  JobOptions job_;
  const Registries* registries_;  ///< makes the model again for each part
  std::unique_ptr<StrategyKind> strategy_;
  JobModel made_;
  DataSplit data_;
  std::vector<StepCallback> step_callbacks_;
  Layout layout_;
  UnitLayout buffers_;
  Whole whole_;
  std::size_t stage_ = 0;
  TensorPart tensor_part_;
  std::uint64_t steps_ = 0;
  std::uint64_t steps_per_epoch_ = 0;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Schedule> schedule_;
  std::optional<optim::TableRules> row_rules_;  ///< nothing: the model has no table
  double lr_ = 0;
  optim::LossScaler scaler_;
  std::shared_ptr<const optim::Checkpoint> saved_;  ///< shared with functions that read from it
};

}  // namespace psring::worker
