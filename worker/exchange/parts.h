#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/loss_scaler.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

class ShardGroups;

/// A strategy is composed of three parts: Parameters, Gradients and Updates. They say who owns which range, and when it
/// moves. A fourth object, Peers, stands for the processes that the parts talk to: none, the other workers, or servers.
/// composition.h calls them in the order of a step.

/// Answers: where are a unit's values when a pass wants them?
class Parameters {
 public:
  virtual ~Parameters() = default;
  /// Starts to bring the initial values here. May be a collective.
  virtual void start() = 0;
  virtual void begin_step() {}
  /// On return the unit's values are readable.
  virtual void acquire(UnitId /*unit*/, Pass /*pass*/) {}
  virtual void release(UnitId /*unit*/, Pass /*pass*/) {}
  /// The step's passes are over: values may change from here on.
  virtual void end_passes() {}
  /// The ranges that this process owns have been updated.
  virtual void updated() {}
  virtual void quiesce() {}
  /// The servers' values are final: asks for all of them again.
  virtual void refresh() {}
  /// Values of the unit's range that this process updates; the whole unit if it updates everything.
  virtual Elements owned(UnitId unit) = 0;
  virtual void predict(Prediction& sum) const = 0;
  /// Null: no unit comes and goes.
  virtual std::unique_ptr<Holding> holding() const { return nullptr; }
};

/// Called with units [begin, end) whose gradients have become the mean over all workers, where this process needs it.
using Landed = std::function<void(Range units)>;

/// Answers: how does a complete gradient reach the owners of its ranges?
class Gradients {
 public:
  virtual ~Gradients() = default;
  virtual void begin_step(Step /*step*/) {}
  /// A backward pass is about to write the unit's gradient: on return there is memory for it.
  virtual void open(UnitId /*unit*/) {}
  /// The unit's gradient of this micro-batch is complete: starts its communication, never waits.
  virtual void ready(UnitId unit, Micro micro, const Landed& landed) = 0;
  /// On return all gradients of the step have reached their owners, and `landed` was called for the gradients that are
  /// here.
  virtual void finish(Step step, const Landed& landed) = 0;
  /// On return the servers have told which update the step's gradients led to.
  virtual void wait_for_updates() {}
  /// The mean gradient of the unit's range that this process updates. After it landed, until the next step.
  virtual Elements owned(UnitId unit) = 0;
  /// Further state that this process saves, in tensors of its own (see Plan::saved_values).
  virtual std::vector<optim::StatePart> state() { return {}; }
  virtual void predict(Prediction& sum) const = 0;
  /// Null: no unit comes and goes.
  virtual std::unique_ptr<Holding> holding() const { return nullptr; }
};

/// Answers: who applies the optimizer, and to which range?
class Updates {
 public:
  virtual ~Updates() = default;
  virtual void start() {}
  /// The mean gradients of these units are here.
  virtual void landed(Range /*units*/, Step /*step*/) {}
  /// All gradients of the step have landed; on return this process has applied its updates.
  virtual void finish(Step step) = 0;
  virtual optim::LossScaler loss_scaler() = 0;
  /// See Saving::state.
  virtual std::vector<optim::StatePart> state() = 0;
  /// All of the state, if this process has it between two steps (see Resuming), and the step that comes next.
  virtual std::optional<std::vector<optim::StatePart>> whole_state() { return std::nullopt; }
  virtual void predict(Prediction& sum) const = 0;
};

/// This process applies the optimizer: to the ranges that it owns in its shard group; to everything if that is null.
std::unique_ptr<Updates> make_local_updates(const Plan& plan, const World& world, Parameters& parameters,
                                            Gradients& gradients, const ShardGroups* groups = nullptr);

/// The processes that a worker exchanges with.
class Peers {
 public:
  virtual ~Peers() = default;
  /// After Parameters::start: the step to begin with.
  virtual Step first() const = 0;
  virtual void begin_step(Step /*step*/) {}
  /// All communication of the step has been started.
  virtual void end_step(Step /*step*/) {}
  /// The first step that some peer still needs this worker's gradients for: with backup workers, others may have gone
  /// on.
  virtual Step furthest(Step after) { return after; }
  virtual void leave() {}
  virtual void quiesce() {}
  virtual bool shares_buffers() const { return false; }
  virtual void wait_saved(std::uint64_t /*step*/) {}
  virtual Nanoseconds waited() const { return Nanoseconds{0}; }
  virtual double staleness() { return 0; }
  /// Adds the traffic of a step that does not depend on the parts.
  virtual void predict(Prediction& /*sum*/) const {}
};

}  // namespace psring::worker
