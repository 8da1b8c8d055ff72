#include <utility>

#include <psring/worker/exchange/fetched_parameters.h>

namespace psring::worker {

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

std::unique_ptr<Holding> FetchedParameters::holding() const { return schedule_.holding(); }

}  // namespace psring::worker
