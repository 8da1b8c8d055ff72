#include <utility>

#include <psring/worker/exchange/fetched_parameters.h>

namespace psring::worker {

FetchedParameters::FetchedParameters(const Plan& plan, const World& world, std::unique_ptr<UnitSource> source)
    : plan_(plan), source_(std::move(source)), schedule_(plan), whole_(plan, world, Presence::Values::parameters) {}

void FetchedParameters::begin_step() {
  drop_all();
  in_step_ = true;
}

void FetchedParameters::acquire(UnitId unit, Pass pass) {
  for (const UnitId next : schedule_.wanted(unit, pass)) {
    if (whole_.present(next)) continue;
    whole_.allocate(next);
    source_->fetch(next, whole_.values(next), in_step_);
  }
  source_->wait(unit);
}

void FetchedParameters::release(UnitId unit, Pass pass) {
  if (!in_step_ || schedule_.drops(unit, pass)) drop(unit);
}

void FetchedParameters::drop(UnitId unit) {
  if (!whole_.present(unit)) return;
  source_->wait_unused(unit);
  whole_.free(unit);
}

void FetchedParameters::drop_all() {
  for (UnitId unit = 0; unit < plan_.layout.units.size(); ++unit) drop(unit);
}

void FetchedParameters::quiesce() {
  drop_all();
  if (!source_->outcome_needs_fetch()) return;
  acquire(plan_.layout.trained().front(), Pass::forward);
  drop_all();
}

}  // namespace psring::worker
