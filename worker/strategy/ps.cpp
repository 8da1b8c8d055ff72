#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/optim/device_applier.h>
#include <psring/optim/updater.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>
#include <psring/worker/strategy/with_servers.h>

namespace psring::worker {
namespace {

/// What both kinds share: parameters and gradients are whole; gradients leave when they are complete.
class ParameterServer : public WithServers {
 public:
  ParameterServer(const Context& context, WholeUnits::Gradients gradients)
      : WithServers(context), units_(context, gradients) {
    if (clips() && context.device != nullptr) applier_ = optim::make_device_applier(*context.device);
  }

  void acquire(UnitId unit, Pass pass) override {
    if (pass == Pass::forward) bring_up_to_date(unit, step_.index);
  }

  void grad_ready(UnitId unit, Micro micro) final {
    if (!micro.last) return;
    ready_.add(unit);
    if (!clips()) exchange(unit);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    if (clips()) clip_and_exchange();
    host_sum_.wait_all();
    step_ = {step.index + 1};
    progress();
  }

  void quiesce() override {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) bring_up_to_date(unit, step_.index);
    WithServers::quiesce();
  }

 private:
  /// Where each push is an update a worker clips what it pushes; else the servers clip what they have of all.
  bool clips() const { return context_.consistency.each_push_updates && context_.optimizer.clip_norm > 0; }
  void clip_and_exchange() {
    optim::ExactSum sum;
    std::vector<ConstElements> gradients;
    for (const UnitId unit : context_.layout.trained()) gradients.push_back(buffers(unit).gradients);
    optim::add_square_sums(gradients, sum, applier_.get());
    const float scale = optim::clip_scale(sum, context_.optimizer.clip_norm, 1);
    for (const UnitId unit : context_.layout.trained()) {
      if (scale < 1) multiply(buffers(unit).gradients, scale);
      exchange(unit);
    }
  }

  void hear_of_updates() override {
    for (const UnitId unit : context_.layout.trained()) wait(unit, step_.index);
  }

 protected:
  /// The unit's gradient is complete.
  virtual void exchange(UnitId unit) = 0;
  /// It goes, for this worker or its host, and what it leads to comes.
  void push_pull(UnitId unit, Staging::Values values) {
    const UnitBuffers& of = buffers(unit);
    const Elements into = values == Staging::Values::parameters ? of.parameters : of.gradients;
    host_sum_.add(unit, of.gradients, [this, unit, into, values, step = step_.index] {
      if (host_sum_.this_one_pushes())
        WithServers::push_pull(unit, step, buffers(unit).gradients, into, values);
      else
        pull(unit, step + 1, into);
    });
  }
  virtual void bring_up_to_date(UnitId unit, std::uint64_t version) = 0;

  WholeUnits units_;

 private:
  std::unique_ptr<optim::DeviceApplier> applier_;  ///< where a device has the gradients that are clipped
};

class OptimizerOnServer final : public ParameterServer {
 public:
  explicit OptimizerOnServer(const Context& context) : ParameterServer(context, WholeUnits::Gradients::whole) {}

  void start() override {
    open();
    pull_all();
  }
  void pull_final() override { pull_all(); }

  Prediction predict() const override {
    Prediction sum = predict_step(trained_parameter_bytes());
    const Layout& layout = context_.layout;
    sum.worker_memory =
        worker_memory(context_, {.optimizer = 0}, 0, layout.parameter_bytes() + uncompressed(layout.gradient_bytes()));
    sum.server_memory = server_memory();
    return sum;
  }

 private:
  void exchange(UnitId unit) override { push_pull(unit, Staging::Values::parameters); }
  void bring_up_to_date(UnitId unit, std::uint64_t version) override { wait(unit, version_of(unit, version)); }
};

/// The servers answer with the mean, which takes the place of the worker's own gradient.
class OptimizerOnWorker final : public ParameterServer {
 public:
  explicit OptimizerOnWorker(const Context& context)
      : ParameterServer(context, WholeUnits::Gradients::answered),
        optimizer_(context.optimizer, context.layout, context.memory, nullptr, context.device),
        versions_(context.units.size(), context.first_step) {}

  void start() override {
    units_.initialise(context_);
    optimizer_.start(context_);
    client().open(context_.seed);
  }

  Prediction predict() const override {
    const Layout& layout = context_.layout;
    Prediction sum = predict_step(layout.gradient_bytes());
    sum.worker_memory = worker_memory(context_, {}, 0, layout.parameter_bytes() + layout.gradient_bytes());
    sum.server_memory = memory_formula(context_, {0, context_.layout.owners, 0});
    return sum;
  }

  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }
  /// All workers have the same, and the servers none.
  std::optional<std::vector<optim::StatePart>> state() override {
    if (context_.rank != 0) return std::vector<optim::StatePart>();
    return optimizer_.save(0, 1, [this](UnitId unit, Range) { return ConstElements(buffers(unit).parameters); });
  }
  void wait_saved(std::uint64_t step) override {
    const bool others = std::ranges::any_of(context_.keepers, [](std::size_t keeper) { return keeper != 0; });
    if (others) WithServers::wait_saved(step);
  }

 private:
  void exchange(UnitId unit) override { push_pull(unit, Staging::Values::gradients); }
  void bring_up_to_date(UnitId unit, std::uint64_t version) override {
    if (versions_[unit] == version || !context_.layout.units[unit].trained) return;
    if (optimizer_.whole_step()) {
      for (const UnitId each : context_.layout.trained()) wait(each, version);
      optimizer_.update_all({version - 1}, context_.units);
      versions_.assign(versions_.size(), version);
    } else {
      wait(unit, version);
      optimizer_.update(unit, {version - 1}, buffers(unit));
      versions_[unit] = version;
    }
  }

  LocalOptimizer optimizer_;
  std::vector<std::uint64_t> versions_;  ///< of each unit's parameters here
};

}  // namespace

std::unique_ptr<Strategy> make_ps(const Spec& spec, const Context& context, bool optimizer_on_server) {
  spec.allow_only({});
  if (optimizer_on_server) return std::make_unique<OptimizerOnServer>(context);
  return std::make_unique<OptimizerOnWorker>(context);
}

}  // namespace psring::worker
