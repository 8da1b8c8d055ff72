// A way of training of one's own: local SGD. Workers train alone, and average their parameters every k steps.
//   ./own_strategy compare --strategies ddp,local-sgd:k=8 --data fashion-mnist --steps 100
#include <psring/cli/app.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/whole_units.h>

using namespace psring::worker;

struct LocalSgd final : Strategy {
  LocalSgd(const Context& c, std::size_t every)
      : context(c), units(c), optimizer(c.optimizer, c.layout, c.memory), k(every) {}
  void start() override { units.initialise(context); }
  void finish_step(Step step) override {
    optimizer.update_all(step, context.units);
    if ((step.index + 1) % k == 0) average();
  }
  void quiesce() override { average(); }  // so that all have the same parameters in the end
  void average() {
    context.group->all_reduce(units.parameters(), psring::ring::ReduceOp::Kind::mean).wait();
    context.group->account();
  }

  const Context context;
  WholeUnits units;
  LocalOptimizer optimizer;
  const std::size_t k;
};

int main(int argc, char** argv) {
  psring::App app;
  app.strategies().add("local-sgd", "local-sgd:k=8: average every k steps", [](const psring::Spec& spec) {
    spec.allow_only({"k"});
    return std::make_unique<StrategyKind>(
        StrategyKind{.ring = true, .exact = false, .make = [k = spec.positive("k", 8)](const Context& c, const auto&) {
                       return std::make_unique<LocalSgd>(c, k);
                     }});
  });
  return app.run(argc, argv);
}
