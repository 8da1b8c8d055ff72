// psring with strategies that say what is not so, which `psring compare` has to find out, and with parts that throw
// exceptions of their own.
#include <memory>
#include <stdexcept>

#include <psring/cli/app.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/job.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/strategy/strategies.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// Each worker trains alone and nothing moves.
class Alone final : public Strategy {
 public:
  Alone(const Plan& plan, const World& world, const Prediction& predicted, bool breaks)
      : single_(make_single(plan, world)), predicted_(predicted), breaks_(breaks) {}

  void start() override { single_->start(); }
  void begin_step(Step step) override { single_->begin_step(step); }
  void grad_ready(UnitId unit, Micro micro) override { single_->grad_ready(unit, micro); }
  void finish_step(Step step) override {
    if (breaks_ && step.index == 1) fail(ErrorKind::data, "broken in step 1");
    single_->finish_step(step);
  }
  Prediction predict() const override { return predicted_; }

 private:
  const std::unique_ptr<Strategy> single_;
  const Prediction predicted_;
  const bool breaks_;
};

void add(App& app, const char* name, bool exact, const Prediction& predicted, bool breaks = false) {
  app.strategies().add(name, "wrong", [=](const Spec&) {
    return std::make_unique<StrategyKind>(
        StrategyKind{.exact = exact, .make = [=](const Plan& plan, const World& world) {
                       return std::make_unique<Alone>(plan, world, predicted, breaks);
                     }});
  });
}

struct ThrowingStrategy final : Strategy {
  void finish_step(Step step) override {
    if (step.index == 1) throw std::runtime_error("mine broke");
  }
  void acquire(UnitId unit, Pass /*pass*/) override {
    world.units[unit].parameters = std::span<float>(parameters).first(plan.layout.units[unit].elements);
    world.units[unit].gradients = std::span<float>(gradients).first(plan.layout.units[unit].elements);
  }
  ThrowingStrategy(const Plan& p, const World& w)
      : plan(p), world(w), parameters(p.layout.elements()), gradients(p.layout.elements()) {}
  const Plan& plan;
  const World& world;
  std::vector<float> parameters;
  std::vector<float> gradients;
};

struct ThrowingLayer final : Layer {
  std::vector<TensorSpec> tensors() const override { return {{.name = "mine", .shape = {4}, .init = {}}}; }
  Shape output(Shape input) const override { return {input.rows, 4}; }
  void forward(const Forward& /*pass*/) const override { throw std::out_of_range("my row"); }
  void backward(const Backward& /*pass*/) const override {}
};

struct ThrowingData final : Dataset {
  std::size_t size() const override { return 64; }
  std::size_t input_cols() const override { return 16; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 4; }
  void read(std::size_t /*index*/, const SampleMemory& /*to*/) const override { throw std::runtime_error("my file"); }
};

void add_throwing(App& app) {
  app.strategies().add("throws", "breaks in step 1", [](const Spec&) {
    return std::make_unique<StrategyKind>(StrategyKind{
        .exact = false,
        .make = [](const Plan& plan, const World& world) { return std::make_unique<ThrowingStrategy>(plan, world); }});
  });
  app.models().add("throws", "throws:in=factory, throws:in=layer", [](const Spec& spec) {
    if (spec.string("in", "") == "factory") throw 42;
    auto model = std::make_unique<Model>();
    model->name = spec.text();
    model->input_cols = 16;
    model->classes = 4;
    model->loss = make_cross_entropy();
    model->layers.push_back(std::make_unique<ThrowingLayer>());
    return model;
  });
  app.datasets().add("throws", "its samples cannot be read", [](const Spec&, const DataNeeds&) {
    auto split = std::make_unique<DataSplit>();
    split->train = std::make_unique<ThrowingData>();
    return split;
  });
}

}  // namespace

int main(int argc, char** argv) {
  App app;
  add(app, "claims-equality", true, {0, 0});  // workers that train alone do not end in the same bits
  add(app, "claims-bytes", false, {4, 0});
  add(app, "claims-memory", false, {.worker_memory = {{Category::gradients, 4}}});
  add(app, "claims-nothing", false, {});
  add(app, "breaks", true, {}, true);
  add_throwing(app);
  return app.run(argc, argv);
}
