#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <psring/common/base/events/events.h>
#include <psring/worker/data/dataset.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/exchange/mesh/shared_tensors.h>
#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/model/layers/layer_buffers.h>
#include <psring/worker/model/network.h>
#include <psring/worker/model/parallel/schedule.h>
#include <psring/worker/model/parallel/tensor_part.h>
#include <psring/worker/not_finite.h>
#include <psring/worker/pace.h>
#include <psring/worker/servers/scatter.h>
#include <psring/worker/step_callback.h>
#include <psring/worker/strategy/abilities.h>
#include <psring/worker/tables/row_batches.h>
#include <psring/worker/walk.h>

namespace psring::worker {

/// The connection between an evaluation and its process.
struct EvaluationHooks {
  /// Asked before each piece of the evaluation that precedes a step; false: the job ends early, before this piece, in
  /// all workers.
  std::function<bool(std::uint64_t step, std::uint64_t piece)> may_begin = [](std::uint64_t, std::uint64_t) {
    return true;
  };
  /// Told of the share of the evaluation that is done, before each piece.
  std::function<void(double share)> goes_on = [](double) {};
};

/// The loop, the same for every strategy: begin_step; a forward walk through the layers (Walk); the loss; a backward
/// walk, which hands over each unit's gradient; finish_step. A stage of a pipeline makes the walks of several
/// micro-batches in the order of its plan (StagePlan), and passes activations and their gradients on (StageLinks).
class Trainer {
 public:
  /// The objects that the loop works with; all of them outlive the Trainer.
  struct Parts {
    const FlatModel& flat;
    Network& network;
    const LayerBuffers& buffers;
    std::size_t rows_per_sample;                   ///< of the model
    std::span<const Metric> metrics = {};          ///< of the model
    std::span<const TableSpec> tables = {};        ///< of the model
    std::span<const StepCallback> callbacks = {};  ///< of the program
    const DataSplit& data;
    Sampler& sampler;
    Scatter* scatter = nullptr;  ///< gives the samples to train on; null: each worker reads its own
    Strategy& strategy;
    Pace& pace;
    StagePlan actions;            ///< of a step; of a worker that has the whole model, one micro-batch after another
    StageLinks* links = nullptr;  ///< to other stages of a pipeline; null: this worker has the whole model
    SharedTensors* shared = nullptr;  ///< that other stages hold, too; null: this worker has the whole model
    TensorPart tensor = {};           ///< this worker's part of each layer
    std::size_t input_cols = 0;       ///< of the data set's samples
    std::function<void(std::uint64_t step)> begins;     ///< told of each step before it begins
    std::function<bool(std::uint64_t step)> may_begin;  ///< see TrainHooks
    EvaluationHooks evaluation;
    std::function<void(std::uint64_t step)> save;  ///< saves a checkpoint after `step` updates; parameters are current
    std::function<bool(std::uint64_t step)> is_saved;  ///< that checkpoint is there already
  };

  Trainer(const Plan& plan, const World& world, Parts parts);

  /// Trains, evaluates, and leaves the parameters current. Returns the step that would come next; earlier than the
  /// plan's last if the job was to end early: then it saves, and does not evaluate. If a failure ended the job's
  /// processes between two steps (Pacing::first), evaluation and saving between them are repeated. Throws data, naming
  /// the step and the unit, if the loss is not finite, and if nearly all of many steps were skipped (SkipWatch).
  std::uint64_t run();
  /// Returns whether the last evaluation was to end early; then it is not reported.
  bool evaluation_cut() const { return evaluation_cut_; }

 private:
  /// Use of the layers' buffers in a forward pass.
  enum class BufferUse : std::uint8_t { update, leave, read };

  void between_steps(std::uint64_t step);
  std::vector<OwnFigure> call_back(std::uint64_t step, std::uint64_t epoch, double loss, std::size_t samples) const;
  /// A micro-batch of a step.
  struct MicroBatch {
    std::span<const std::uint32_t> samples;  ///< may be empty
    std::size_t first = 0;                   ///< the place of the first in the worker's batch
    Randomness randomness;
    Micro micro;
  };

  LossResult step_of_worker(std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker);
  std::vector<MicroBatch> micro_batches(std::span<const std::uint32_t> samples, Step step,
                                        std::size_t virtual_worker) const;
  /// Makes the stage's next action. Adds the loss to `total` where it is computed.
  void act(const StageAction& action, const MicroBatch& batch, float scale, Step step, LossResult& total);
  void forward_pass(const MicroBatch& batch);
  LossResult backward_pass(const MicroBatch& batch, float scale, Step step);
  bool has_first_layer() const { return parts_.links == nullptr || world_.mesh->is_first(); }
  bool has_loss() const { return parts_.links == nullptr || world_.mesh->is_last(); }
  bool reports_loss() const { return parts_.links == nullptr || plan_.mesh.reports_loss(plan_.place.rank); }
  Nanoseconds waited() const;
  /// `first`: position of the first sample in the worker's batch of the step, which random numbers depend on.
  Randomness randomness(Step step, const Micro& micro, std::size_t first) const;
  /// `first`: as MicroBatch::first.
  void load(const Dataset& data, std::span<const std::uint32_t> samples, std::size_t first,
            const Randomness& randomness);
  void forward(BufferUse use);
  void backward(Micro micro);
  void pass_without_computing(Pass pass, const MicroBatch& batch);
  /// Returns the multiples of `every` above `after`, up to `last`.
  static std::vector<std::uint64_t> multiples_of(std::uint64_t every, std::uint64_t after, std::uint64_t last);
  /// `next`: the step that follows.
  void evaluate(const std::vector<std::uint64_t>& steps, std::uint64_t next);
  void save(std::uint64_t step);

  const Plan& plan_;
  const World& world_;
  const Parts parts_;
  const Abilities able_;
  const std::size_t batch_;  ///< samples of one (virtual) worker in a step, at most
  const std::uint64_t save_every_;
  const std::uint64_t eval_every_;
  bool evaluation_cut_ = false;
  Walk walk_;
  SkipWatch skips_;
  std::optional<RowBatches> rows_;   ///< nothing: the model has no table
  std::vector<float> unused_input_;  ///< of a sample whose targets alone are needed here
};

}  // namespace psring::worker
