#include <psring/common/proc/job.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/exchange/workers/bucketed_gradients.h>
#include <psring/worker/exchange/workers/sharded_gradients.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

/// In both stages every worker has whole parameters. It updates the range of every unit that it owns, and keeps the
/// optimizer's state of that range. Then each of `calls` all-gathers its units.
std::unique_ptr<Strategy> compose(const Plan& plan, const World& world, const std::vector<Range>& calls,
                                  const auto& make_gradients) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = make_gathered_parameters(plan, world, *workers, calls);
  parts.gradients = make_gradients(*workers);
  parts.updates = make_local_updates(plan, world, *parts.parameters, *parts.gradients, &workers->groups());
  if (!plan.layout.tables.empty()) parts.tables = make_served_tables(plan, world, true);
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

/// Gradients are whole, and leave in buckets.
std::unique_ptr<Strategy> make_zero1(const Plan& plan, const World& world) {
  const std::vector<Range> buckets = make_bucketer(plan).buckets();
  return compose(plan, world, buckets, [&](Workers& workers) {
    const auto rank = optim::power_sgd_rank(plan.job.compress);
    auto averaging = rank ? make_low_rank_all_reduce(plan, world, workers, buckets, *rank)
                          : make_reduce_scatter(plan, world, workers);
    return std::make_unique<BucketedGradients>(plan, world, workers, Ownership(plan.layout, workers.owners().rank()),
                                               std::move(averaging));
  });
}

/// Each worker keeps its range of the gradients. Units travel one by one.
std::unique_ptr<Strategy> make_zero2(const Plan& plan, const World& world) {
  std::vector<Range> units;
  for (const UnitId unit : plan.layout.trained()) units.push_back({unit, unit + 1});
  return compose(plan, world, units, [&](Workers& workers) {
    return std::make_unique<ShardedGradients>(plan, world, workers, make_reduce_scatter(plan, world, workers));
  });
}

}  // namespace

void register_zero(Registry<StrategyKind>& registry) {
  StrategyKind zero{
      .ring = true, .compresses = true, .on_device = true, .tables = true, .stage = 1, .make = make_zero1};
  zero.buckets = true;
  add_strategy(registry, "zero1", "ddp, but optimizer state by owner", zero);
  zero.buckets = false;
  zero.at_owner = true;
  zero.stage = 2;
  zero.make = make_zero2;
  add_strategy(registry, "zero2", "gradients by owner, too", zero);
}

}  // namespace psring::worker
