#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/trace.h>
#include <psring/worker/data/dataset.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer_buffers.h>
#include <psring/worker/model/network.h>
#include <psring/worker/pace.h>
#include <psring/worker/scatter.h>
#include <psring/worker/skip_watch.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// How long and on what a worker trains.
struct TrainPlan {
  std::uint64_t steps = 0;
  std::size_t batch = 0;         ///< samples of one (virtual) worker in a step, at most
  std::size_t accumulate = 1;    ///< micro-batches that a step's batch is cut into
  std::uint64_t eval_every = 0;  ///< steps; 0: at the end only
  std::uint64_t first_step = 0;  ///< the steps before it were made by a run that this one continues
  std::uint64_t save_every = 0;  ///< steps, and at the end; 0: never
  std::size_t rank = 0;
  std::size_t workers = 1;
  std::size_t virtual_workers = 1;
};

struct StepReport {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  double loss = 0;  ///< mean over what this worker saw in the step; 0 where it saw nothing
  std::size_t samples = 0;
  Nanoseconds duration{0};
  Nanoseconds exposed{0};  ///< of it, waiting for communication
  double staleness = 0;    ///< of the gradients whose updates were heard of in it; see Strategy::staleness
};

/// This worker's share of an evaluation: integer counts, to be added up over the workers.
struct Evaluation {
  std::uint64_t step = 0;  ///< updates made before it
  double loss_sum = 0;
  std::uint64_t rows = 0;
  std::uint64_t correct = 0;
};

/// Hears of each step and evaluation as it ends.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_evaluation(const Evaluation& evaluation) = 0;
};

/// What the loop works with; all of it outlives the Trainer.
struct TrainParts {
  const FlatModel& flat;
  const Layout& layout;
  Network& network;
  const LayerBuffers& buffers;
  std::size_t rows_per_sample;  ///< of the model
  const DataSplit& data;
  Sampler& sampler;
  Scatter* scatter = nullptr;  ///< gives samples to train on; null: each worker reads its own
  Strategy& strategy;
  Pace& pace;
  std::span<UnitBuffers> units;
  const Clock& clock;
  Trace& trace;
  TrainObserver& observer;
  /// Told of each step before it begins.
  std::function<void(std::uint64_t step)> begins = [](std::uint64_t) {};
  /// Asked before each step; false: the job ends early, before this step, as it does at all workers.
  std::function<bool(std::uint64_t step)> may_begin = [](std::uint64_t) { return true; };
  std::function<void(std::uint64_t step)> save = {};  ///< a checkpoint of so many updates; parameters are current
  /// Is it there already? Asked before each save.
  std::function<bool(std::uint64_t step)> is_saved = [](std::uint64_t) { return false; };
};

/// The loop, the same for every strategy: begin_step; for each layer acquire its unit, forward, release;
/// the loss; in reverse acquire, backward, release, and grad_ready once a unit's last layer is through;
/// finish_step. A unit is acquired before its first layer of a pass and released after its last. Backward ends with the
/// first layer that is trained: what only layers before it have is not acquired for it, and what is not trained has no
/// grad_ready.
class Trainer {
 public:
  Trainer(const TrainPlan& plan, const TrainParts& parts);

  /// Trains, evaluates, and leaves the parameters current. Returns the step that would come next: less than the plan's
  /// where the job was to end early, which is saved, and not evaluated. Where a failure ended the job's processes
  /// between two steps (Strategy::first), what comes between them comes again. Throws data, naming the step and the
  /// unit, where the loss is not finite; and where nearly all of many steps were skipped (SkipWatch).
  std::uint64_t run();

 private:
  /// Of the layers' buffers, in a forward pass.
  enum class BufferUse : std::uint8_t { update, leave, read };

  void between_steps(std::uint64_t step);
  LossResult step_of_worker(std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker);
  void forward_without_samples();
  void hooks_of_pass(Step step, Micro micro, const std::function<void()>& in_place_of_layer);
  void forward_again(Range layers);
  void hand_over(std::size_t layer, Micro micro);
  LossResult micro_batch(std::span<const std::uint32_t> samples, float scale, Step step, Micro micro);
  Nanoseconds waited() const;
  void load(const Dataset& data, std::span<const std::uint32_t> samples);
  void forward(BufferUse use);
  void backward(Micro micro);
  /// One layer's pass; an exception of the layer's own names the layer.
  void forward_layer(std::size_t layer, bool training, std::span<const std::span<float>> buffers);
  void backward_layer(std::size_t layer);
  std::string layer_in(std::size_t layer, const char* pass) const;
  void evaluate(const std::vector<std::uint64_t>& steps);
  void save(std::uint64_t step);
  Range layers_of(std::size_t unit, Pass pass) const;
  void acquire(std::size_t layer, Pass pass);
  void release(std::size_t layer, Pass pass);
  [[noreturn]] void fail_not_finite(Step step) const;

  const TrainPlan plan_;
  const TrainParts parts_;
  Binding binding_;
  SkipWatch skips_;
};

}  // namespace psring::worker
