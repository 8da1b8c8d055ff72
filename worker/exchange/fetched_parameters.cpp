#include <algorithm>
#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::worker {

FetchedParameters::Schedule::Schedule(const Plan& plan) : plan_(plan) {
  for (const auto& [unit, begins] : forward_events(plan.unit_layers))
    if (begins) order_[0].push_back(unit);
  for (const auto& [unit, begins] : backward_events(plan.backward_layers))
    if (begins) order_[1].push_back(unit);
}

std::span<const UnitId> FetchedParameters::Schedule::wanted(UnitId unit, Pass pass) const {
  const std::span<const UnitId> order = order_[pass == Pass::forward ? 0 : 1];
  const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), unit) - order.begin());
  return order.subspan(at, std::min(plan_.job.prefetch + 1, order.size() - at));
}

/// A unit that backward does not need is not kept for it.
bool FetchedParameters::Schedule::drops(UnitId unit, Pass released) const {
  return released == Pass::backward || plan_.job.reshard_after_forward || plan_.backward_layers[unit].empty();
}

std::vector<UnitId> FetchedParameters::Schedule::fetches_of_step() const {
  std::vector<UnitId> units;
  for (std::size_t micro = 0; micro < plan_.job.accumulate; ++micro) {
    units.insert(units.end(), order_[0].begin(), order_[0].end());
    if (plan_.job.reshard_after_forward) units.insert(units.end(), order_[1].begin(), order_[1].end());
  }
  return units;
}

class FetchedParameters::Replay final : public Holding {
 public:
  Replay(const Layout& layout, const Schedule& schedule)
      : layout_(layout), schedule_(schedule), here_(layout.units.size(), false) {}

  void acquire(UnitId unit, Pass pass) override {
    for (const UnitId next : schedule_.wanted(unit, pass)) set(next, true);
  }
  void release(UnitId unit, Pass pass) override {
    if (schedule_.drops(unit, pass)) set(unit, false);
  }
  std::uint64_t bytes() const override { return bytes_; }

 private:
  void set(UnitId unit, bool now) {
    if (here_[unit] == now) return;
    here_[unit] = now;
    bytes_ = now ? bytes_ + layout_.parameter_bytes(unit) : bytes_ - layout_.parameter_bytes(unit);
  }

  const Layout& layout_;
  const Schedule& schedule_;
  std::vector<bool> here_;
  std::uint64_t bytes_ = 0;
};

FetchedParameters::FetchedParameters(const Plan& plan, const World& world, std::unique_ptr<UnitSource> source)
    : plan_(plan),
      world_(world),
      source_(std::move(source)),
      schedule_(plan),
      whole_(plan.layout.units.size()),
      staging_(plan.layout.units.size()) {}

void FetchedParameters::begin_step() {
  drop_all();
  in_step_ = true;
}

void FetchedParameters::acquire(UnitId unit, Pass pass) {
  for (const UnitId next : schedule_.wanted(unit, pass)) {
    if (whole_[next].size_bytes() > 0) continue;
    UnitBuffers& buffers = world_.units[next];
    whole_[next] = world_.buffer(plan_.layout.parameter_bytes(next), Category::communication);
    buffers.parameters = whole_[next].elements(plan_.layout.parameter_type);
    staging_[next] = world_.staging(whole_[next].size_bytes());
    if (world_.stages()) buffers.staged_parameters = staging_[next].elements(plan_.layout.parameter_type);
    report(next, true, whole_[next].size_bytes());
    source_->fetch(next, buffers.parameters, in_step_);
  }
  source_->wait(unit);
}

void FetchedParameters::release(UnitId unit, Pass pass) {
  if (!in_step_ || schedule_.drops(unit, pass)) drop(unit);
}

void FetchedParameters::drop(UnitId unit) {
  if (whole_[unit].size_bytes() == 0) return;
  source_->wait(unit);
  source_->wait_unused(unit);
  report(unit, false, whole_[unit].size_bytes());
  whole_[unit] = Buffer();
  staging_[unit] = Buffer();
  world_.units[unit].parameters = {};
}

void FetchedParameters::report(UnitId unit, bool here, std::size_t bytes) const {
  world_.events.detail(Presence{Presence::Values::parameters, static_cast<std::uint32_t>(unit), here, bytes});
}

void FetchedParameters::drop_all() {
  for (UnitId unit = 0; unit < whole_.size(); ++unit) drop(unit);
}

void FetchedParameters::quiesce() {
  drop_all();
  if (!source_->outcome_needs_fetch()) return;
  acquire(plan_.layout.trained().front(), Pass::forward);
  drop_all();
}

void FetchedParameters::predict(Prediction& sum) const { source_->predict(schedule_.fetches_of_step(), sum); }

std::unique_ptr<Holding> FetchedParameters::holding() const {
  return std::make_unique<Replay>(plan_.layout, schedule_);
}

}  // namespace psring::worker
