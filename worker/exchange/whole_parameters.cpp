#include <utility>

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

}  // namespace psring::worker
