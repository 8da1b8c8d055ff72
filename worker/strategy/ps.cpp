#include <optional>

#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {
namespace {

/// What both kinds share: gradients leave when they are complete, and what a unit waits for is counted.
class ParameterServer : public Strategy {
 public:
  explicit ParameterServer(const Context& context) : context_(context), units_(context), ready_(context.layout) {
    check(context.client != nullptr, "ps needs servers");
  }

  void begin_step(Step step) override { step_ = step; }

  void acquire(UnitId unit, Pass pass) override {
    if (pass == Pass::forward) bring_up_to_date(unit, step_.index);
  }

  void grad_ready(UnitId unit, Micro micro) final {
    if (!micro.last) return;
    ready_.add(unit);
    exchange(unit);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    step_ = {step.index + 1};
    client().progress();
  }

  void quiesce() override {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) bring_up_to_date(unit, step_.index);
  }

  Prediction predict() const override {
    const std::uint64_t bytes = context_.layout.elements() * sizeof(float);
    Prediction sum{bytes, bytes, context_.workers * bytes, context_.workers * bytes};
    predict_memory(sum);
    return sum;
  }

  Nanoseconds waited() const override { return waited_; }

 protected:
  PsClient& client() const { return *context_.client; }
  UnitBuffers& buffers(UnitId unit) { return context_.units[unit]; }
  /// The unit's gradient is complete.
  virtual void exchange(UnitId unit) = 0;
  virtual void bring_up_to_date(UnitId unit, std::uint64_t version) = 0;
  virtual void predict_memory(Prediction& sum) const = 0;

  void wait(UnitId unit, std::uint64_t version) {
    if (client().has(unit, version)) return;
    const Moment start = context_.clock.now();
    client().wait(unit, version);
    waited_ += context_.clock.now() - start;
  }

  const Context context_;
  WholeUnits units_;
  Step step_;

 private:
  ReadyUnits ready_;
  Nanoseconds waited_{0};
};

class OptimizerOnServer final : public ParameterServer {
 public:
  using ParameterServer::ParameterServer;

  void start() override {
    const bool given = context_.initial != nullptr;
    if (given && context_.rank == 0) {
      units_.initialise(context_);
      client().open(context_.seed, true, [this](UnitId unit) { return buffers(unit).parameters; });
    } else {
      client().open(context_.seed, given);
    }
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) client().pull(unit, 0, buffers(unit).parameters, true);
  }

 private:
  void exchange(UnitId unit) override {
    client().push_pull(unit, step_.index, buffers(unit).gradients, buffers(unit).parameters);
  }
  void bring_up_to_date(UnitId unit, std::uint64_t version) override { wait(unit, version); }
  /// A server's update writes into a second buffer.
  void predict_memory(Prediction& sum) const override {
    const std::size_t servers = context_.layout.owners;
    sum.worker_memory = worker_memory(context_, {.optimizer = 0});
    sum.server_memory = memory_formula(context_, {servers, 0, servers});
    sum.server_memory[Category::parameters] *= 2;
    // Where a step has to be whole, the mean of all units waits for its verdict.
    if (context_.optimizer.clip_norm > 0 || context_.optimizer.rule->layerwise())
      sum.server_memory[Category::gradients] = memory_formula(context_, {.gradients = servers})[Category::gradients];
  }
};

/// The servers answer with the mean, which takes the place of the worker's own gradient.
class OptimizerOnWorker final : public ParameterServer {
 public:
  explicit OptimizerOnWorker(const Context& context)
      : ParameterServer(context),
        optimizer_(context.optimizer, context.layout, context.memory),
        versions_(context.units.size(), 0) {}

  void start() override {
    units_.initialise(context_);
    client().open(context_.seed);
  }

 private:
  void exchange(UnitId unit) override {
    client().push_pull(unit, step_.index, buffers(unit).gradients, buffers(unit).gradients);
  }
  void bring_up_to_date(UnitId unit, std::uint64_t version) override {
    if (versions_[unit] == version) return;
    if (optimizer_.whole_step()) {
      for (UnitId each = 0; each < versions_.size(); ++each) wait(each, version);
      optimizer_.update_all({version - 1}, context_.units);
      versions_.assign(versions_.size(), version);
    } else {
      wait(unit, version);
      optimizer_.update(unit, {version - 1}, buffers(unit));
      versions_[unit] = version;
    }
  }

  void predict_memory(Prediction& sum) const override {
    sum.worker_memory = worker_memory(context_, {});
    sum.server_memory = memory_formula(context_, {0, context_.layout.owners, 0});
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
