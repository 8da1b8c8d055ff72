#pragma once

#include <psring/worker/exchange/plan.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/strategy/abilities.h>

namespace psring::worker {

/// One way of data-parallel training: when ranges move. The trainer calls the hooks in the order of a step, and never
/// changes for a strategy. All hooks but finish_step may be left as they are. The built-in strategies are composed of
/// three parts (composition.h), and most user strategies are, too.
///
/// Further abilities are interfaces of their own (abilities.h).
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Before the first step: starts to bring the initial parameters here.
  virtual void start() {}
  virtual void begin_step(Step /*step*/) {}
  /// On return the unit's parameters are readable. The strategy may prefetch the next units'.
  virtual void acquire(UnitId /*unit*/, Pass /*pass*/) {}
  /// The pass is through with the unit: its parameters may be dropped.
  virtual void release(UnitId /*unit*/, Pass /*pass*/) {}
  /// A trained unit's gradient of this micro-batch is complete: starts its communication, never waits.
  virtual void grad_ready(UnitId /*unit*/, Micro /*micro*/) {}
  /// Drains gradients, clips, and starts the updates of the ranges that this process owns.
  virtual void finish_step(Step step) = 0;
  /// On return parameters are current everywhere: before an evaluation, a checkpoint, the end.
  virtual void quiesce() {}
  /// Predicts the bytes that a step moves and that a process books, at this worker and at the servers.
  virtual Prediction predict() const { return {}; }
  /// Returns the strategy's further abilities, which live as long as the strategy.
  virtual Abilities abilities() { return {}; }
};

}  // namespace psring::worker
