#include <psring/common/base/error.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/with_servers.h>

namespace psring::worker {

WithServers::WithServers(const Context& context) : context_(context), ready_(context.layout) {
  check(context.client != nullptr, "ps needs servers");
}

void WithServers::wait(UnitId unit, std::uint64_t version) {
  if (client().has(unit, version)) return;
  const Moment start = context_.clock.now();
  client().wait(unit, version);
  waited_ += context_.clock.now() - start;
}

void WithServers::wait_acknowledged(UnitId unit) {
  const Moment start = context_.clock.now();
  client().wait_acknowledged(unit);
  waited_ += context_.clock.now() - start;
}

Prediction WithServers::predict_step(std::size_t pulls) const {
  const std::uint64_t bytes = context_.layout.elements() * sizeof(float);
  const std::uint64_t n = context_.workers;
  return {bytes, pulls * bytes, n * bytes, n * pulls * bytes};
}

/// An update writes into a second buffer. Where a step has to be whole, the mean of all units waits for its verdict.
std::map<Category, std::uint64_t> WithServers::server_memory() const {
  const std::size_t servers = context_.layout.owners;
  const bool whole = context_.optimizer.clip_norm > 0 || context_.optimizer.rule->layerwise();
  std::map<Category, std::uint64_t> memory = memory_formula(context_, {servers, whole ? servers : 0, servers});
  memory[Category::parameters] *= 2;
  return memory;
}

}  // namespace psring::worker
