#include <psring/worker/exchange/local_updates.h>
#include <psring/worker/exchange/mesh/tensor_gradients.h>
#include <psring/worker/exchange/whole_parameters.h>
#include <psring/worker/strategy/composition.h>
#include <psring/worker/strategy/strategies.h>

namespace psring::worker {
namespace {

std::unique_ptr<Strategy> make_ddp_naive(const Plan& plan, const World& world) {
  Parts parts;
  auto workers = std::make_unique<Workers>(plan, world);
  parts.parameters = std::make_unique<WholeParameters>(plan, world, workers.get());
  parts.gradients = std::make_unique<TensorGradients>(plan, world, *workers);
  parts.updates = std::make_unique<LocalUpdates>(plan, world, *parts.parameters, *parts.gradients);
  parts.peers = std::move(workers);
  return std::make_unique<Composition>(plan, world, std::move(parts));
}

}  // namespace

void register_ddp_naive(Registry<StrategyKind>& registry) {
  add_strategy(registry, "ddp-naive", "workers average gradients, one all-reduce a tensor after backward",
               {.ring = true, .whole = true, .on_device = true, .make = make_ddp_naive});
}

}  // namespace psring::worker
