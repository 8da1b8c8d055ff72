#include <psring/worker/exchange/servers/late_updates.h>
#include <psring/worker/exchange/servers/pushed_gradients.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {

std::unique_ptr<Strategy> make_ps_on_workers(const Plan& plan, const World& world) {
  Parts parts;
  auto servers = std::make_unique<Servers>(plan, world);
  auto updates = std::make_unique<LateUpdates>(plan, world, *servers);
  parts.parameters = std::make_unique<WholeParameters>(
      plan, world, nullptr, [updates = updates.get()](UnitId unit) { updates->bring_up_to_date(unit); });
  parts.gradients = std::make_unique<PushedGradients>(plan, world, *servers, Answer::mean);
  parts.updates = std::move(updates);
  parts.peers = std::move(servers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace psring::worker
