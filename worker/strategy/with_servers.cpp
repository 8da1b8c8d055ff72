#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/common/device/device.h>
#include <psring/worker/compressor.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/with_servers.h>

namespace psring::worker {

WithServers::WithServers(const Context& context)
    : context_(context),
      host_sum_(context_),
      step_{context.first_step},
      ready_(context.layout),
      first_{context.first_step},
      scaler_(context.optimizer.loss_scaler),
      steps_told_(context.first_step) {
  check(context.client != nullptr, "ps needs servers");
  if (context_.stages()) staging_ = std::make_unique<Staging>(context_);
}

void WithServers::push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) {
  const ConstElements pushed = written(unit, step, micro, gradient);
  if (staging_) return staging_->push(unit, step, pushed, micro);
  client().push(unit, step, pushed, micro);
}

void WithServers::push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into,
                            Staging::Values values) {
  const ConstElements pushed = written(unit, step, 0, gradient);
  if (staging_) return staging_->push_pull(unit, step, pushed, into, values);
  client().push_pull(unit, step, pushed, into);
}

ConstElements WithServers::written(UnitId unit, std::uint64_t step, std::size_t micro, ConstElements gradient) const {
  return context_.compressor != nullptr ? context_.compressor->encode(unit, step, micro, gradient) : gradient;
}

void WithServers::pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) {
  if (staging_) return staging_->pull(unit, version, into, start_up);
  client().pull(unit, version, into, start_up);
}

void WithServers::progress() {
  if (staging_) return staging_->progress();
  client().progress();
}

void WithServers::wait_copied(UnitId unit) {
  if (staging_) staging_->wait_copied(unit);
}

Nanoseconds WithServers::waited() const { return staging_ ? context_.device->stalled() : waited_ + host_sum_.waited(); }

/// What the first step pulled proves that initial values were taken.
void WithServers::begin_step(Step step) {
  step_ = step;
  if (step.index > first_.index) initial_ = {};
}

/// Who was too late for an update goes on where all servers are.
Step WithServers::after(Step step) {
  if (context_.consistency.backups == 0) return {step.index + 1};
  hear_of_updates();
  std::uint64_t all = kFinalVersion;
  for (const UnitId unit : context_.layout.trained()) all = std::min(all, client().heard(unit));
  step_ = {std::max(step.index + 1, all)};
  return step_;
}

void WithServers::leave() {
  if (!context_.consistency.each_push_updates) return;
  quiesce();
  client().leave();
  left_ = true;
  pull_final();
}

double WithServers::staleness() { return client().take_staleness(); }

void WithServers::open() {
  if (!context_.initial || context_.rank != 0) {
    client().open(context_.seed, context_.initial != nullptr);
  } else {
    initial_.resize(context_.units.size());
    client().open(context_.seed, true, [&](UnitId unit) -> std::span<const float> {
      initial_[unit].resize(context_.layout.units[unit].elements);
      context_.initial(unit, {0, initial_[unit].size()}, initial_[unit]);
      return initial_[unit];
    });
  }
  first_ = step_ = {client().version()};
  steps_told_ = first_.index;
  const std::span<const std::byte> scale = client().loss_scale();
  if (scaler_.active() != (scale.size() == optim::LossScaler::kBytes))
    fail(ErrorKind::protocol, "the servers scale losses otherwise than this worker does");
  if (scaler_.active()) scaler_.load(scale.first<optim::LossScaler::kBytes>());
}

optim::LossScaler WithServers::loss_scaler() {
  for (; scaler_.active() && steps_told_ < step_.index; ++steps_told_) scaler_.finished(!client().skipped(step_.index));
  return scaler_;
}

void WithServers::wait(UnitId unit, std::uint64_t version) {
  if (staging_) return staging_->wait(unit, version);
  if (client().has(unit, version)) return;
  const Moment start = context_.clock.now();
  client().wait(unit, version);
  waited_ += context_.clock.now() - start;
}

void WithServers::wait_acknowledged(UnitId unit) {
  if (staging_) return staging_->wait_acknowledged(unit);
  const Moment start = context_.clock.now();
  client().wait_acknowledged(unit);
  waited_ += context_.clock.now() - start;
}

/// Servers answer when all is written: theirs, and what other workers have of their own.
void WithServers::wait_saved(std::uint64_t step) {
  const auto& keepers = context_.keepers;
  const auto others =
      static_cast<std::size_t>(std::ranges::count_if(keepers, [](std::size_t keeper) { return keeper != 0; }));
  if (context_.rank == 0)
    client().save(step, others);
  else if (std::ranges::count(keepers, context_.rank) > 0)
    client().written(step);
}

Prediction WithServers::predict_step(std::uint64_t pulled) const {
  const std::uint64_t gradient =
      context_.compressor != nullptr ? context_.compressor->encoded_bytes() : context_.layout.gradient_bytes();
  const std::uint64_t pushed = context_.layout.pushes * gradient;
  const std::uint64_t servers = context_.layout.owners;
  const auto away = [&](std::uint64_t bytes, std::size_t worker) {
    const bool one_here = context_.colocated && worker < servers;
    return one_here ? bytes / servers * (servers - 1) : bytes;
  };
  Prediction sum{0, away(pulled, context_.rank), 0, 0};
  const auto push = [&](std::size_t worker) {
    if (worker == context_.rank) *sum.worker_sends += away(pushed, worker);
    *sum.server_receives += away(pushed, worker);
  };
  for (std::size_t worker = 0; worker < context_.workers; ++worker) {
    if (context_.pushers.empty()) push(worker);
    *sum.server_sends += away(pulled, worker);
  }
  for (const std::size_t worker : context_.pushers) push(worker);
  const std::size_t all_push = context_.pushers.empty() ? context_.workers : context_.pushers.size();
  if (context_.replicas > 0) sum.server_replicates = context_.replicas * all_push * pushed;
  if (context_.colocated && context_.rank < servers) {
    sum.own_server_receives = (all_push - (host_sum_.this_one_pushes() ? 1 : 0)) * (pushed / servers);
    sum.own_server_sends = (context_.workers - 1) * (pulled / servers);
  }
  host_sum_.predict(sum);
  return sum;
}

/// An update writes into a second buffer, which what is not trained has not. Where a step has to be whole, the mean of
/// all units waits for its verdict.
std::map<Category, std::uint64_t> WithServers::server_memory() const {
  const std::size_t servers = context_.layout.owners;
  const OptimizerPlan& plan = context_.optimizer;
  const bool clips = plan.clip_norm > 0 && !context_.consistency.each_push_updates;
  const bool whole = context_.layout.pushes > 1 || clips || plan.loss_scaler.active() || plan.rule->layerwise();
  std::map<Category, std::uint64_t> memory = memory_formula(context_, {servers, whole ? servers : 0, servers});
  memory[Category::parameters] += trained_parameter_bytes() / servers;
  const bool apart = context_.layout.parameter_type != DType::f32 && plan.master_copy;
  if (context_.servers_on_device && !apart) memory[Category::parameters] += trained_parameter_bytes() / servers;
  if (context_.remedy.keeps_given())
    memory[Category::optimizer] += context_.workers * trained_parameter_bytes() / servers;
  return memory;
}

}  // namespace psring::worker
