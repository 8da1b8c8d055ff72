#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/job.h>
#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/servers/servers.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::worker {

Servers::Servers(const Plan& plan, const World& world)
    : plan_(plan),
      world_(world),
      link_((check(world.client != nullptr || planned(world.device) != nullptr, "ps needs servers"),
             make_server_link(plan, world))),
      host_sum_(plan, world),
      first_{plan.first_step},
      step_{plan.first_step},
      scaler_(plan.optimizer.loss_scaler),
      steps_told_(plan.first_step) {}

void Servers::open() {
  PsClient& client = *world_.client;
  if (!plan_.initial || plan_.data_rank.value != 0) {
    client.open(plan_.job.seed, plan_.initial != nullptr);
  } else {
    initial_.resize(world_.units.size());
    client.open(plan_.job.seed, true, [&](UnitId unit) -> std::span<const float> {
      initial_[unit].resize(plan_.layout.units[unit].elements);
      plan_.initial(unit, {0, initial_[unit].size()}, initial_[unit]);
      return initial_[unit];
    });
  }
  first_ = step_ = {client.version()};
  steps_told_ = first_.index;
  const std::span<const std::byte> scale = client.loss_scale();
  if (scaler_.active() != (scale.size() == optim::LossScaler::kBytes))
    fail(ErrorKind::protocol, "the servers scale losses otherwise than this worker does");
  if (scaler_.active()) scaler_.load(scale.first<optim::LossScaler::kBytes>());
}

void Servers::open_without_values() { world_.client->open(plan_.job.seed); }

std::uint64_t Servers::version_of(UnitId unit, std::uint64_t step) const {
  if (!plan_.layout.units[unit].trained) return plan_.first_step;
  return left_ ? kFinalVersion : step;
}

/// Once a step's values are here, the servers have taken the initial ones.
void Servers::begin_step(Step step) {
  step_ = step;
  if (world_.client != nullptr) world_.client->begin_step(step.index);
  if (step.index > first_.index) initial_ = {};
}

void Servers::end_step(Step step) {
  step_ = {step.index + 1};
  link_->progress();
  if (plan_.mesh.divides_model()) drain();
}

/// The next pass may wait for another part of the model, whose servers may wait for this part's gradients: with
/// clipping, no server makes its update before all have the sums of all.
void Servers::drain() {
  const Moment start = world_.clock.now();
  world_.client->drain();
  drained_ += world_.clock.now() - start;
}

/// A worker that was too late for an update continues at the step that all servers have reached.
Step Servers::furthest(Step after) {
  std::uint64_t all = kFinalVersion;
  for (const UnitId unit : plan_.layout.trained()) all = std::min(all, world_.client->heard(unit));
  step_ = {std::max(after.index, all)};
  return step_;
}

void Servers::leave() {
  world_.client->leave();
  left_ = true;
}

double Servers::staleness() { return world_.client->take_staleness(); }

optim::LossScaler Servers::loss_scaler() {
  for (; scaler_.active() && steps_told_ < step_.index; ++steps_told_)
    scaler_.finished(!world_.client->skipped(step_.index));
  return scaler_;
}

/// Servers answer when all parts are written: their own, and the parts that other workers keep. If the servers only
/// average, this worker has nothing to wait for unless other workers keep residuals.
void Servers::wait_saved(std::uint64_t step) {
  const auto& keepers = plan_.keepers;
  const auto others =
      static_cast<std::size_t>(std::ranges::count_if(keepers, [](std::size_t keeper) { return keeper != 0; }));
  if (plan_.job.optimizer_on == "worker" && others == 0) return;
  if (plan_.data_rank.value == 0)
    world_.client->save(step, others);
  else if (std::ranges::count(keepers, plan_.data_rank.value) > 0)
    world_.client->written(step);
}

}  // namespace psring::worker
