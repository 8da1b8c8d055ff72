#include <psring/common/proc/job.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/worker/exchange/bucketed_gradients.h>
#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/gathered_parameters.h>
#include <psring/worker/exchange/local_updates.h>
#include <psring/worker/exchange/sharded_gradients.h>
#include <psring/worker/exchange/shared_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

std::unique_ptr<Averaging> make_averaging(int stage, const Plan& plan, const World& world, Workers& workers) {
  const auto rank = optim::power_sgd_rank(plan.job.compress);
  if (stage == 1 && rank) return make_low_rank_all_reduce(plan, world, workers, make_bucketer(plan).buckets(), *rank);
  if (world.compressor != nullptr) return make_compressed_reduce_scatter(plan, world, workers);
  return make_reduce_scatter(plan, workers);
}

/// Stage 3: parameters are divided among the owners. Stages 1 and 2: every worker has them whole; an all-gather moves
/// the units that a reduce-scatter moved.
std::unique_ptr<Parameters> make_parameters(int stage, const Plan& plan, const World& world, Workers& workers) {
  if (stage == 3 && plan.job.share_host_parameters) return std::make_unique<SharedParameters>(plan, world, workers);
  if (stage == 3) return std::make_unique<FetchedParameters>(plan, world, make_worker_source(plan, world, workers));
  std::vector<Range> calls = make_bucketer(plan).buckets();
  if (stage == 2) {
    calls.clear();
    for (const UnitId unit : plan.layout.trained()) calls.push_back({unit, unit + 1});
  }
  return std::make_unique<GatheredParameters>(plan, world, workers, std::move(calls));
}

/// Stage 1: gradients are whole, and leave in buckets. Stages 2 and 3: each worker keeps its range of the gradients.
std::unique_ptr<Gradients> make_gradients(int stage, const Plan& plan, const World& world, Workers& workers) {
  auto averaging = make_averaging(stage, plan, world, workers);
  if (stage > 1) return std::make_unique<ShardedGradients>(plan, world, workers, std::move(averaging));
  return std::make_unique<BucketedGradients>(plan, world, workers, Ownership(plan.layout, workers.owners().rank()),
                                             std::move(averaging));
}

/// In all stages each worker updates the range of every unit that it owns, and keeps the optimizer's state of it.
std::unique_ptr<Strategy> make_zero(int stage, const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = make_parameters(stage, plan, world, *workers);
  parts.gradients = make_gradients(stage, plan, world, *workers);
  parts.updates = std::make_unique<LocalUpdates>(plan, world, *parts.parameters, *parts.gradients, &workers->groups());
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_zero(Registry<StrategyKind>& registry) {
  const auto zero = [&](const char* name, const char* help, int stage) {
    registry.add(name, help, [stage](const Spec& spec) {
      spec.allow_only({});
      return std::make_unique<StrategyKind>(StrategyKind{
          .ring = true,
          .buckets = stage == 1,
          .compresses = true,
          .gathers = stage == 3,
          .at_owner = stage >= 2,
          .on_device = true,
          .stage = stage,
          .make = [stage](const Plan& plan, const World& world) { return make_zero(stage, plan, world); }});
    });
  };
  zero("zero1", "ddp, but optimizer state by owner", 1);
  zero("zero2", "gradients by owner, too", 2);
  zero("zero3", "parameters by owner, too: each unit is gathered when a pass needs it", 3);
  zero("fsdp", "another name for zero3", 3);
}

}  // namespace psring::worker
