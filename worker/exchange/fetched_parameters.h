#pragma once

#include <memory>
#include <span>

#include <psring/worker/exchange/fetch_schedule.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/transient_units.h>

namespace psring::worker {

/// The source from which whole units are fetched.
class UnitSource {
 public:
  virtual ~UnitSource() = default;
  virtual void start() = 0;
  /// Starts to bring the unit's values into `whole`. `in_step`: for training; else for an evaluation or a checkpoint,
  /// whose bytes count as control.
  virtual void fetch(UnitId unit, Elements whole, bool in_step) = 0;
  /// On return the values are there, and no other process reads them here any more.
  virtual void wait(UnitId unit) = 0;
  /// The same; on return only the device's own queue touches the unit's memory.
  virtual void wait_unused(UnitId unit) { wait(unit); }
  virtual Elements owned(UnitId unit) = 0;
  /// `fetched`: the units that a step fetches, each as often as it does.
  virtual void predict(std::span<const UnitId> fetched, Prediction& sum) const = 0;
  /// Only fetched values tell whether the last step was skipped, and a residual that is about to be saved depends on
  /// it.
  virtual bool outcome_needs_fetch() const { return false; }
};

/// Each worker keeps its own range of every unit, and all-gathers the unit from the owners.
std::unique_ptr<UnitSource> make_worker_source(const Plan& plan, const World& world, class Workers& workers);
/// The servers own all ranges, and the unit is pulled from them.
std::unique_ptr<UnitSource> make_server_source(const Plan& plan, const World& world, class Servers& servers);

/// Units that are whole only while a pass needs them (stage 3): fetched before the pass acquires them, --prefetch units
/// ahead, and dropped when it releases them; with --reshard-after-forward off, a unit that backward needs stays until
/// its backward pass is over.
class FetchedParameters final : public Parameters {
 public:
  FetchedParameters(const Plan& plan, const World& world, std::unique_ptr<UnitSource> source);

  void start() override { source_->start(); }
  void begin_step() override;
  void acquire(UnitId unit, Pass pass) override;
  void release(UnitId unit, Pass pass) override;
  void end_passes() override { drop_all(); }
  void updated() override { in_step_ = false; }
  void quiesce() override;
  Elements owned(UnitId unit) override { return source_->owned(unit); }
  void predict(Prediction& sum) const override { source_->predict(schedule_.fetches_of_step(), sum); }
  std::unique_ptr<Holding> holding() const override { return schedule_.holding(); }

 private:
  void drop(UnitId unit);
  void drop_all();

  const Plan& plan_;
  const std::unique_ptr<UnitSource> source_;
  const FetchSchedule schedule_;
  TransientUnits whole_;
  bool in_step_ = false;
};

}  // namespace psring::worker
