// psring with strategies that say what is not so: `psring compare` has to find both out.
#include <memory>

#include <psring/cli/app.h>
#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/strategies.h>

using namespace psring;
using namespace psring::worker;

namespace {

/// Each worker trains alone and nothing moves.
class Alone final : public Strategy {
 public:
  Alone(const Context& context, const JobOptions& job, const Prediction& predicted, bool breaks)
      : single_(make_single(Spec::parse("--strategies", "single"), context, job)),
        predicted_(predicted),
        breaks_(breaks) {}

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
        StrategyKind{.exact = exact, .make = [=](const Context& context, const JobOptions& job) {
                       return std::make_unique<Alone>(context, job, predicted, breaks);
                     }});
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
  return app.run(argc, argv);
}
