#include <psring/common/base/error.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/with_servers.h>

namespace psring::worker {

WithServers::WithServers(const Context& context)
    : context_(context),
      step_{context.first_step},
      ready_(context.layout),
      scaler_(context.optimizer.loss_scaler),
      steps_told_(context.first_step) {
  check(context.client != nullptr, "ps needs servers");
}

void WithServers::open() {
  if (!context_.initial || context_.rank != 0) {
    client().open(context_.seed, context_.initial != nullptr);
    return;
  }
  std::vector<std::vector<float>> values;
  for (UnitId unit = 0; unit < context_.units.size(); ++unit) {
    values.emplace_back(context_.layout.units[unit].elements);
    context_.initial(unit, {0, values[unit].size()}, values[unit]);
  }
  client().open(context_.seed, true, [&](UnitId unit) -> std::span<const float> { return values[unit]; });
}

optim::LossScaler WithServers::loss_scaler() {
  for (; scaler_.active() && steps_told_ < step_.index; ++steps_told_) scaler_.finished(!client().skipped(step_.index));
  return scaler_;
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

void WithServers::wait_saved(std::uint64_t step) {
  if (context_.rank == 0) client().save(step);
}

Prediction WithServers::predict_step(std::uint64_t pulled) const {
  const std::uint64_t pushed = context_.layout.gradient_bytes();
  const std::uint64_t n = context_.workers;
  return {pushed, pulled, n * pushed, n * pulled};
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
