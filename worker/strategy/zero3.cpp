#include <psring/common/proc/job.h>
#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/workers/sharded_gradients.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

std::unique_ptr<Parameters> make_parameters(const Plan& plan, const World& world, Workers& workers) {
  if (plan.job.share_host_parameters) return make_shared_parameters(plan, world, workers);
  return std::make_unique<FetchedParameters>(plan, world, make_worker_source(plan, world, workers));
}

/// Each worker keeps the range of every unit that it owns: parameters, gradients and the optimizer's state. A unit is
/// whole only while a pass needs it.
std::unique_ptr<Strategy> make_zero3(const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = make_parameters(plan, world, *workers);
  parts.gradients =
      std::make_unique<ShardedGradients>(plan, world, *workers, make_reduce_scatter(plan, world, *workers));
  parts.updates = make_local_updates(plan, world, *parts.parameters, *parts.gradients, &workers->groups());
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_zero3(Registry<StrategyKind>& registry) {
  const StrategyKind kind{.ring = true,
                          .compresses = true,
                          .gathers = true,
                          .at_owner = true,
                          .on_device = true,
                          .stage = 3,
                          .make = make_zero3};
  add_strategy(registry, "zero3", "parameters by owner, too: each unit is gathered when a pass needs it", kind);
  add_strategy(registry, "fsdp", "another name for zero3", kind);
}

}  // namespace psring::worker
