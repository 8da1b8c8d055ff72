#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/worker/compressor.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/gradient_window.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/parameter_window.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>
#include <psring/worker/strategy/with_servers.h>

namespace psring::worker {
namespace {

/// What both stages share: a unit's gradient has memory until its servers have it.
class PushedGradients : public WithServers {
 public:
  bool adds_up() const override { return false; }

  void grad_ready(UnitId unit, Micro micro) final {
    if (micro.last) ready_.add(unit);
    const Elements gradient = gradients_.depart(unit);
    host_sum_.add(unit, gradient, [this, unit, micro, gradient, step = step_.index] {
      if (host_sum_.this_one_pushes()) push(unit, step, gradient, micro.index);
      if (micro.last) pushed(unit);
    });
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    gradients_.drain();
    step_ = {step.index + 1};
  }

 protected:
  explicit PushedGradients(const Context& context)
      : WithServers(context), gradients_(context_, [this](UnitId unit, auto) {
          host_sum_.wait(unit);
          wait_acknowledged(unit);
        }) {}

  /// Of a step, for the last time.
  virtual void pushed(UnitId /*unit*/) {}

  GradientWindow gradients_;
};

/// Parameters whole: pulled as soon as the unit's gradient is on its way.
class PsZero2 final : public PushedGradients {
 public:
  explicit PsZero2(const Context& context) : PushedGradients(context), units_(context, WholeUnits::Gradients::none) {}

  void start() override {
    open();
    pull_all();
  }
  void pull_final() override { pull_all(); }

  void acquire(UnitId unit, Pass pass) override {
    if (pass == Pass::forward)
      wait(unit, version_of(unit, step_.index));
    else
      gradients_.open(unit);
  }

  void quiesce() override {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) wait(unit, version_of(unit, step_.index));
    WithServers::quiesce();
  }

  Prediction predict() const override {
    Prediction sum = predict_step(trained_parameter_bytes());
    const std::uint64_t gradients =
        GradientWindow::Replay::most_bytes(context_.layout, context_.backward_layers, context_.layout.pushes);
    sum.worker_memory = worker_memory(context_, {.gradients = 0, .optimizer = 0}, gradients,
                                      context_.layout.parameter_bytes() + uncompressed(gradients));
    sum.server_memory = server_memory();
    return sum;
  }

 private:
  void pushed(UnitId unit) override { pull(unit, step_.index + 1, buffers(unit).parameters); }

  WholeUnits units_;
};

/// No parameters, either: a unit is pulled for each pass.
class PsZero3 final : public PushedGradients {
 public:
  PsZero3(const Context& context, const JobOptions& job)
      : PushedGradients(context),
        parameters_(context_, job,
                    {.fetch = [this](UnitId unit,
                                     Elements whole) { pull(unit, version_of(unit, step_.index), whole, !training_); },
                     .wait = [this](UnitId unit) { wait(unit, version_of(unit, step_.index)); },
                     .leave = [this](UnitId unit) { wait_copied(unit); }}) {}

  void start() override { open(); }

  void begin_step(Step step) override {
    parameters_.drop_all();
    WithServers::begin_step(step);
    training_ = true;
  }

  void acquire(UnitId unit, Pass pass) override {
    parameters_.acquire(unit, pass);
    if (pass == Pass::backward) gradients_.open(unit);
  }
  void release(UnitId unit, Pass pass) override { parameters_.release(unit, pass, training_); }

  void finish_step(Step step) override {
    parameters_.drop_all();
    PushedGradients::finish_step(step);
    training_ = false;
  }

  /// Whether the last step was skipped is known once any of its values are here: a residual that is saved depends on
  /// it.
  void quiesce() override {
    parameters_.drop_all();
    if (context_.compressor != nullptr && context_.compressor->feedback() && context_.optimizer.loss_scaler.active()) {
      parameters_.acquire(context_.layout.trained().front(), Pass::forward);
      parameters_.drop_all();
    }
    WithServers::quiesce();
  }

  Prediction predict() const override {
    std::uint64_t pulled = 0;
    for (const UnitId unit : parameters_.fetches()) pulled += context_.layout.parameter_bytes(unit);
    Prediction sum = predict_step(pulled);
    sum.worker_memory = worker_memory(context_, {0, 0, 0}, parameters_.most_bytes(),
                                      parameters_.most_bytes(context_.compressor == nullptr));
    sum.server_memory = server_memory();
    return sum;
  }

 private:
  bool training_ = false;  ///< within a step: what is pulled to evaluate and to save is control
  ParameterWindow parameters_;
};

}  // namespace

std::unique_ptr<Strategy> make_ps_zero(int stage, const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  if (stage == 2) return std::make_unique<PsZero2>(context);
  return std::make_unique<PsZero3>(context, job);
}

}  // namespace psring::worker
