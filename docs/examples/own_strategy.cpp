// A way of training of one's own: local SGD. Workers train alone, and average their parameters every k steps.
//   ./own_strategy compare --strategies ddp,local-sgd:k=8 --data fashion-mnist --steps 100
#include <psring/cli/app.h>
#include <psring/worker/exchange/local_gradients.h>
#include <psring/worker/exchange/local_updates.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>

using namespace psring::worker;

// Whole parameters, as in ddp, which become the mean of all workers' every k steps.
struct AveragedParameters final : Parameters {
  AveragedParameters(const Plan& plan, const World& world, Workers& w, std::size_t every)
      : whole(plan, world, &w), workers(w), k(every) {}
  void start() override { whole.start(); }
  void updated() override {
    if (++steps % k == 0) average();
  }
  void quiesce() override { average(); }  // so that evaluations, and the end, see the same parameters everywhere
  void average() {
    auto work = workers.group().all_reduce(whole.all(), psring::ring::ReduceOp::Kind::mean);
    workers.wait(work);
  }
  Elements owned(UnitId unit) override { return whole.owned(unit); }
  void predict(Prediction& sum) const override { whole.predict(sum); }  // bytes are not predicted, and shown as —

  WholeParameters whole;
  Workers& workers;
  const std::size_t k;
  std::uint64_t steps = 0;
};

// Every worker keeps its own gradients, and updates everything.
std::unique_ptr<Strategy> make_local_sgd(std::size_t k, const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = std::make_unique<AveragedParameters>(plan, world, *workers, k);
  parts.gradients = std::make_unique<LocalGradients>(plan, world);
  parts.updates = std::make_unique<LocalUpdates>(plan, world, *parts.parameters, *parts.gradients);
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

int main(int argc, char** argv) {
  psring::App app;
  app.strategies().add("local-sgd", "local-sgd:k=8: average every k steps", [](const psring::Spec& spec) {
    spec.allow_only({"k"});
    const std::size_t k = spec.positive("k", 8);
    return std::make_unique<StrategyKind>(
        StrategyKind{.ring = true, .exact = false, .make = [k](const Plan& plan, const World& world) {
                       return make_local_sgd(k, plan, world);
                     }});
  });
  return app.run(argc, argv);
}
