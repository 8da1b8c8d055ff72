#include <psring/worker/exchange/local_gradients.h>
#include <psring/worker/exchange/tables/local_tables.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

/// No peers: one process trains alone.
class Nobody final : public Peers {
 public:
  explicit Nobody(const Plan& plan) : first_{plan.first_step} {}
  Step first() const override { return first_; }
  void predict(Prediction& sum) const override {
    sum.worker_sends = sum.worker_receives = sum.server_receives = sum.server_sends = 0;
  }

 private:
  const Step first_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const Plan& plan, const World& world) {
  Parts parts;
  parts.peers = std::make_unique<Nobody>(plan);
  parts.parameters = std::make_unique<WholeParameters>(plan, world);
  parts.gradients = std::make_unique<LocalGradients>(plan, world);
  parts.updates = make_local_updates(plan, world, *parts.parameters, *parts.gradients);
  if (!plan.layout.tables.empty()) parts.tables = std::make_unique<LocalTables>(plan, world);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

void register_single(Registry<StrategyKind>& registry) {
  add_strategy(registry, "single", "one process, no exchange",
               {.on_device = true, .tables = true, .one_worker = true, .make = make_single});
}

}  // namespace psring::worker
