#include <algorithm>
#include <utility>

#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/whole_parameters.h>

namespace psring::worker {

void initialise_whole(const Plan& plan, const World& world) {
  for (UnitId unit = 0; unit < world.units.size(); ++unit) {
    const Elements values = world.units[unit].parameters;
    plan.initialise(unit, {0, values.size()}, values);
  }
}

WholeParameters::WholeParameters(const Plan& plan, const World& world, Workers* workers, BeforeUse before_use)
    : plan_(plan),
      world_(world),
      workers_(workers),
      before_use_(std::move(before_use)),
      parameters_(plan, world, WholeUnits::Values::parameters) {}

void WholeParameters::start() {
  if (workers_ == nullptr || plan_.data_rank.value == 0) initialise_whole(plan_, world_);
  if (workers_ != nullptr) workers_->broadcast(parameters_.all());
}

void WholeParameters::acquire(UnitId unit, Pass pass) {
  if (pass == Pass::forward && before_use_) before_use_(unit);
}

void WholeParameters::quiesce() {
  if (!before_use_) return;
  for (UnitId unit = 0; unit < world_.units.size(); ++unit) before_use_(unit);
}

void WholeParameters::predict(Prediction& sum) const {
  sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
  if (world_.stages()) sum.worker_memory[Category::staging] += parameters_.all().size_bytes();
}

GatheredParameters::GatheredParameters(const Plan& plan, const World& world, Workers& workers, std::vector<Range> calls)
    : plan_(plan),
      world_(world),
      workers_(workers),
      ownership_(plan.layout, workers.owners().rank()),
      calls_([&] {
        std::sort(calls.begin(), calls.end());
        return std::move(calls);
      }()),
      parameters_(plan, world, WholeUnits::Values::parameters) {}

void GatheredParameters::start() {
  if (plan_.data_rank.value == 0) initialise_whole(plan_, world_);
  workers_.broadcast(parameters_.all());
}

void GatheredParameters::acquire(UnitId unit, Pass pass) {
  if (pass != Pass::forward || !plan_.layout.units[unit].trained) return;
  for (Gather& gather : gathers_)
    if (gather.units.contains({unit, unit + 1})) workers_.wait(gather.work);
}

void GatheredParameters::updated() {
  gathers_.clear();
  for (const Range units : calls_)
    gathers_.push_back(
        {units, workers_.owners().all_gather(parameters_.trained(units), owners_of(plan_.layout, units))});
}

void GatheredParameters::quiesce() {
  for (Gather& gather : gathers_) workers_.wait(gather.work);
}

void GatheredParameters::predict(Prediction& sum) const {
  for (const Range units : calls_) {
    std::size_t elements = 0;
    for (UnitId unit = units.begin; unit < units.end; ++unit) elements += plan_.layout.trained_elements(unit);
    add_call(workers_.owners().predict(ring::Collective::all_gather, elements, {plan_.layout.parameter_type},
                                       owners_of(plan_.layout, units)),
             sum);
  }
  sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
}

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
  const std::size_t element_bytes = size_bytes(plan_.layout.parameter_type);
  servers_.predict_pulls(plan_.layout.trained_elements() * element_bytes, sum);  // an update changes no frozen unit
  sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
  if (world_.stages()) sum.worker_memory[Category::staging] += parameters_.all().size_bytes();
}

}  // namespace psring::worker
