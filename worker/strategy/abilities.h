#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <psring/optim/checkpoint/shard.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/exchange/tables/tables.h>

namespace psring::worker {

/// Ability: its state can be saved in a checkpoint.
class Saving {
 public:
  virtual ~Saving() = default;
  /// This process's part of the state. All processes together have each element once; servers save their own ranges.
  /// Valid after quiesce, until the next step.
  virtual std::vector<optim::StatePart> state() = 0;
  /// On return all other processes have written their parts of the checkpoint of `step`. A collective.
  virtual void wait_saved(std::uint64_t step) = 0;
};

/// Ability: the job can continue after it lost workers, because each has the whole state.
class Resuming {
 public:
  /// The whole state between two steps, and the step that comes next.
  struct Whole {
    Step next;
    std::vector<optim::StatePart> parts;
  };
  virtual ~Resuming() = default;
  /// Valid at any moment, also after an error ended a hook. Nothing: parts of the state are with others.
  virtual std::optional<Whole> whole_state() = 0;
};

/// Ability: the loss is multiplied before backward, so that small gradients survive in 16 bits.
class LossScaling {
 public:
  virtual ~LossScaling() = default;
  /// The scale of the step under way. Asked in every step after its first forward pass; and before a checkpoint, after
  /// quiesce if a compressor keeps residuals, else after wait_saved. See optim::LossScaler.
  virtual optim::LossScaler loss_scaler() = 0;
};

/// Ability: workers are not all in the same step (ssp, asp, backup workers), or join a job that is under way.
class Pacing {
 public:
  virtual ~Pacing() = default;
  /// After start: the step to begin with.
  virtual Step first() = 0;
  /// The step that follows: the next one, unless the others have gone on without this worker.
  virtual Step after(Step step) = 0;
  /// Called after the last step: this worker pushes nothing more. From then on it acquires the final parameters of all
  /// workers.
  virtual void leave() = 0;
  /// Returns the number of other workers' updates between the values from which a gradient was computed and its own
  /// update: the mean over the updates that were reported to this worker since the last call.
  virtual double staleness() = 0;
};

/// Ability: it measures how long this process waits for communication, and shares the layers' buffers.
class Exchanging {
 public:
  virtual ~Exchanging() = default;
  /// In total.
  virtual Nanoseconds waited() const = 0;
  /// quiesce brings worker 0's World::buffers to all. If not, worker 0 alone evaluates a model that has such buffers.
  virtual bool shares_buffers() const = 0;
};

/// The abilities of one strategy, each null if the strategy lacks it.
struct Abilities {
  Saving* saving = nullptr;
  Resuming* resuming = nullptr;
  LossScaling* scaling = nullptr;
  Pacing* pacing = nullptr;
  Exchanging* exchanging = nullptr;
  Tables* tables = nullptr;  ///< the rows of the model's tables; null if it has none

  /// The strategy's loss scaler; if it has none, a loss scaler that scales nothing.
  optim::LossScaler loss_scaler() const { return scaling != nullptr ? scaling->loss_scaler() : optim::LossScaler(); }
  Nanoseconds waited() const { return exchanging != nullptr ? exchanging->waited() : Nanoseconds{0}; }
};

}  // namespace psring::worker
