#include <psring/worker/exchange/local_gradients.h>
#include <psring/worker/exchange/local_tables.h>
#include <psring/worker/exchange/local_updates.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {

std::unique_ptr<Strategy> make_single(const Plan& plan, const World& world) {
  Parts parts;
  parts.peers = std::make_unique<Nobody>(plan);
  parts.parameters = std::make_unique<WholeParameters>(plan, world);
  parts.gradients = std::make_unique<LocalGradients>(plan, world);
  parts.updates = std::make_unique<LocalUpdates>(plan, world, *parts.parameters, *parts.gradients);
  if (!plan.layout.tables.empty()) parts.tables = std::make_unique<LocalTables>(plan, world);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

void register_single(Registry<StrategyKind>& registry) {
  add_strategy(registry, "single", "one process, no exchange",
               {.on_device = true, .tables = true, .one_worker = true, .make = make_single});
}

}  // namespace psring::worker
