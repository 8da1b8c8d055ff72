// A program with a strategy of its own, local SGD: workers train alone, and average their parameters every k steps.
//   ./own_strategy compare --strategies ddp,local-sgd:k=8 --data fashion-mnist --steps 100
#include <psring/cli/app.h>
#include <psring/worker/exchange/local_gradients.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
using namespace psring::worker;

struct Averaged final : Parameters {  // whole, as in ddp; every k steps they become the mean of all workers'
  Averaged(const Plan& p, const World& world, Workers& w, std::size_t n) : whole(p, world, &w), workers(w), k(n) {}
  void start() override { whole.start(); }
  void updated() override {
    if (++steps % k == 0) quiesce();
  }
  void quiesce() override { workers.group().all_reduce(whole.all(), psring::ring::ReduceOp::Kind::mean).wait(); }
  psring::Elements owned(UnitId unit) override { return whole.owned(unit); }
  void predict(Prediction& sum) const override { whole.predict(sum); }  // bytes are not predicted, and shown as —
  WholeParameters whole;
  Workers& workers;
  const std::size_t k;
  std::size_t steps = 0;
};

int main(int argc, char** argv) {
  psring::App app;
  app.strategies().add("local-sgd", "local-sgd:k=8: average every k steps", [](const psring::Spec& spec) {
    spec.allow_only({"k"});
    const auto make = [k = spec.positive("k", 8)](const Plan& plan, const World& world) {
      auto workers = std::make_unique<Workers>(plan, world);
      auto parameters = std::make_unique<Averaged>(plan, world, *workers, k);
      auto own = std::make_unique<LocalGradients>(plan, world);  // gradients stay with their worker
      auto updates = make_local_updates(plan, world, *parameters, *own);
      Parts parts{std::move(workers), std::move(parameters), std::move(own), std::move(updates)};
      return std::make_unique<Composition>(plan, world, std::move(parts));
    };
    return std::make_unique<StrategyKind>(StrategyKind{.ring = true, .exact = false, .make = make});
  });
  return app.run(argc, argv);
}
