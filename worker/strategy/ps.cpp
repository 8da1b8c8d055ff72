#include <psring/common/proc/job.h>
#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/servers/pushed_gradients.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

/// Every worker has whole parameters and gradients. A gradient is pushed as soon as it is complete, with the request
/// for the values that its update leads to; the next forward pass waits for each unit when it needs it.
std::unique_ptr<Strategy> make_ps_on_servers(const Plan& plan, const World& world) {
  Parts parts;
  auto servers = std::make_unique<Servers>(plan, world);
  parts.parameters = make_pulled_parameters(plan, world, *servers);
  parts.gradients = std::make_unique<PushedGradients>(plan, world, *servers, Answer::parameters);
  parts.updates = make_server_updates(plan, *servers);
  if (!plan.layout.tables.empty()) parts.tables = make_served_tables(plan, world);
  parts.peers = std::move(servers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

std::unique_ptr<Strategy> make_ps(const Plan& plan, const World& world) {
  return plan.job.optimizer_on == "server" ? make_ps_on_servers(plan, world) : make_ps_on_workers(plan, world);
}

/// A gradient has memory until its servers have it. In stage 3 parameters are pulled for each pass, and dropped.
std::unique_ptr<Strategy> make_ps_zero(int stage, const Plan& plan, const World& world) {
  Parts parts;
  auto servers = std::make_unique<Servers>(plan, world);
  if (stage == 2)
    parts.parameters = make_pulled_parameters(plan, world, *servers);
  else
    parts.parameters = std::make_unique<FetchedParameters>(plan, world, make_server_source(plan, world, *servers));
  parts.gradients = make_windowed_pushes(plan, world, *servers, stage == 2 ? Answer::parameters : Answer::nothing);
  parts.updates = make_server_updates(plan, *servers);
  parts.peers = std::move(servers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_ps(Registry<StrategyKind>& registry) {
  const StrategyKind ps{.servers = true, .compresses = true, .on_device = true, .make = make_ps};
  StrategyKind with_tables = ps;
  with_tables.tables = true;
  add_strategy(registry, "ps", "servers own all parameters; push and pull, bsp", with_tables);

  StrategyKind kind = with_tables;
  kind.consistency = "ssp:3";
  add_strategy(registry, "ps-ssp", "ps where each push is an update, and nobody is more than 3 steps ahead", kind);
  kind.consistency = "asp";
  add_strategy(registry, "ps-async", "ps where each push is an update, and nobody waits", kind);

  kind = with_tables;
  kind.colocated = true;
  add_strategy(registry, "ps-colocated", "ps with a server in each worker's process", kind);
  kind.tables = false;
  kind.one_server = true;
  kind.scatters = true;
  kind.optimizer_on = "worker";
  add_strategy(registry, "dp",
               "the classic: one server in worker 0, which also scatters the batch; the optimizer on the workers",
               kind);

  const auto ps_zero = [&](int stage) {
    StrategyKind of = ps;
    of.gathers = stage == 3;
    of.at_owner = true;
    of.stage = stage;
    of.make = [stage](const Plan& plan, const World& world) { return make_ps_zero(stage, plan, world); };
    return of;
  };
  add_strategy(registry, "ps-zero2", "ps, but a gradient goes as soon as it is pushed", ps_zero(2));
  add_strategy(registry, "ps-zero3", "parameters go, too: each unit is pulled when a pass needs it", ps_zero(3));
}

}  // namespace psring::worker
