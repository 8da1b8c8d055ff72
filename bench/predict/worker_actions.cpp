#include <memory>

#include <psring/bench/predict/worker_actions.h>

namespace psring::bench {
namespace {

using worker::UnitId;
using Kind = WorkerAction::Kind;

/// Writes down what it is asked for, and the time that the worker computes in between.
class WrittenLink final : public worker::ServerLink {
 public:
  WrittenLink(PlannedClock& clock, std::vector<WorkerAction>& actions) : clock_(clock), actions_(actions) {}

  void push(UnitId unit, std::uint64_t /*step*/, ConstElements /*gradient*/, std::size_t micro) override {
    add({.kind = Kind::push, .unit = unit, .micro = micro});
  }
  void push_pull(UnitId unit, std::uint64_t /*step*/, ConstElements /*gradient*/, Elements /*into*/) override {
    add({.kind = Kind::push, .unit = unit, .pulls = true});
  }
  void pull(UnitId unit, std::uint64_t version, Elements /*into*/, bool /*start_up*/) override {
    add({.kind = Kind::pull, .unit = unit, .after_update = version > step_});
  }
  void wait(UnitId unit, std::uint64_t /*version*/) override { add({.kind = Kind::await_values, .unit = unit}); }
  void wait_acknowledged(UnitId unit) override { add({.kind = Kind::await_pushes, .unit = unit}); }
  /// The step's communication has been started.
  void progress() override {
    add_computing();
    ++step_;
  }
  Nanoseconds waited() const override { return {}; }

 private:
  void add(const WorkerAction& action) {
    add_computing();
    actions_.push_back(action);
  }
  void add_computing() {
    const double now = clock_.moments().last();
    if (now > computed_) actions_.push_back({.kind = Kind::compute, .seconds = now - computed_});
    computed_ = now;
  }

  PlannedClock& clock_;
  std::vector<WorkerAction>& actions_;
  std::uint64_t step_ = 0;
  double computed_ = 0;  ///< all before is in the actions
};

}  // namespace

/// The first step has no update before it.
std::vector<WorkerAction> worker_actions(const TimedJob& job, const ComputePace& pace) {
  std::vector<WorkerAction> actions;
  PlannedWorker worker(job, 0, pace,
                       [&](PlannedClock& clock) { return std::make_unique<WrittenLink>(clock, actions); });
  for (std::size_t step = 0; step < 2; ++step) {
    actions.clear();
    worker.begin_step();
    for (std::size_t micro = 0; micro < job.work.micro_batches; ++micro) {
      worker.forward();
      worker.backward(micro);
    }
    worker.finish_step();
  }
  return actions;
}

}  // namespace psring::bench
