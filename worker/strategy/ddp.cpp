#include <psring/common/proc/job.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/exchange/workers/bucketed_gradients.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

std::unique_ptr<Averaging> make_averaging(const Plan& plan, const World& world, Workers& workers) {
  const std::vector<Range> buckets = make_bucketer(plan).buckets();
  if (const auto rank = optim::power_sgd_rank(plan.job.compress))
    return make_low_rank_all_reduce(plan, world, workers, buckets, *rank);
  if (world.compressor != nullptr) return make_compressed_all_reduce(plan, world, workers, buckets);
  return make_all_reduce(plan, workers);
}

/// Whole parameters, gradients in buckets, and every worker updates everything.
std::unique_ptr<Strategy> make_ddp(const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = std::make_unique<WholeParameters>(plan, world, workers.get());
  parts.gradients = std::make_unique<BucketedGradients>(plan, world, *workers, Ownership(plan.layout),
                                                        make_averaging(plan, world, *workers));
  parts.updates = make_local_updates(plan, world, *parts.parameters, *parts.gradients);
  if (!plan.layout.tables.empty()) parts.tables = make_served_tables(plan, world, true);
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_ddp(Registry<StrategyKind>& registry) {
  StrategyKind ddp{
      .ring = true, .buckets = true, .compresses = true, .whole = true, .on_device = true, .make = make_ddp};
  ddp.tables = true;
  add_strategy(registry, "ddp", "workers average gradients in buckets, while backward goes on", ddp);
}

}  // namespace psring::worker
