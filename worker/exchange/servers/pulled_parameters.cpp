#include <psring/worker/exchange/servers/pulled_parameters.h>

namespace psring::worker {

PulledParameters::PulledParameters(const Plan& plan, const World& world, Servers& servers)
    : plan_(plan), world_(world), servers_(servers), parameters_(plan, world, WholeUnits::Values::parameters) {}

void PulledParameters::start() {
  servers_.open();
  pull_all();
}

void PulledParameters::pull_all() {
  for (UnitId unit = 0; unit < world_.units.size(); ++unit)
    servers_.link().pull(unit, servers_.version_of(unit), world_.units[unit].parameters, true);
}

void PulledParameters::acquire(UnitId unit, Pass pass) {
  if (pass == Pass::forward) servers_.link().wait(unit, servers_.version_of(unit));
}

void PulledParameters::quiesce() {
  for (UnitId unit = 0; unit < world_.units.size(); ++unit) servers_.link().wait(unit, servers_.version_of(unit));
}

void PulledParameters::predict(Prediction& sum) const {
  servers_.predict_pulls(plan_.layout.trained(), plan_.layout.parameter_type, sum);  // updates change no frozen unit
  sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
  if (world_.stages()) sum.worker_memory[Category::staging] += parameters_.all().size_bytes();
}

}  // namespace psring::worker
