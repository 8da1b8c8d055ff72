#include <psring/common/device/device.h>
#include <psring/common/proc/job.h>
#include <psring/worker/exchange/local_updates.h>

namespace psring::worker {
namespace {

void predict_state(const Plan& plan, std::size_t owners, Prediction& sum) {
  sum.worker_memory[Category::optimizer] +=
      memory_formula(plan, {.parameters = 0, .gradients = 0, .optimizer = owners})[Category::optimizer];
}

}  // namespace

LocalUpdates::LocalUpdates(const Plan& plan, const World& world, Parameters& parameters, Gradients& gradients,
                           SavedShare saved, ring::ProcessGroup* owners)
    : plan_(plan),
      world_(world),
      parameters_(parameters),
      gradients_(gradients),
      saved_(saved),
      divided_(owners != nullptr),
      optimizer_(plan.optimizer, plan.layout, world.memory, owners, world.device),
      as_they_land_(owners == nullptr && !optimizer_.whole_step() && !plan.survives_losses) {}

void LocalUpdates::landed(Range units, Step step) {
  if (!as_they_land_) return;
  for (UnitId unit = units.begin; unit < units.end; ++unit) optimizer_.update(unit, step, owned(unit));
}

void LocalUpdates::finish(Step step) {
  if (as_they_land_) return;
  // A device's queue goes on after a reduction was given up: parameters must not be updated with its result.
  if (plan_.survives_losses && world_.device != nullptr) world_.device->wait(world_.device->mark());
  std::vector<UnitBuffers> units(plan_.layout.units.size());
  for (const UnitId unit : plan_.layout.trained()) units[unit] = owned(unit);
  optimizer_.update_all(step, units);
}

std::vector<optim::StatePart> LocalUpdates::save(std::size_t part, std::size_t parts) {
  return optimizer_.save(part, parts, [this](UnitId unit, Range range) {
    return ConstElements(parameters_.owned(unit).subspan(range.begin - optimizer_.owned(unit).begin, range.size()));
  });
}

std::vector<optim::StatePart> LocalUpdates::state() {
  if (!saved_.saves) return {};
  return save(saved_.part, saved_.parts);
}

std::optional<std::vector<optim::StatePart>> LocalUpdates::whole_state() {
  if (divided_ || !plan_.survives_losses) return std::nullopt;
  return save(0, 1);
}

void LocalUpdates::predict(Prediction& sum) const { predict_state(plan_, divided_ ? plan_.layout.owners : 1, sum); }

LateUpdates::LateUpdates(const Plan& plan, const World& world, Servers& servers)
    : plan_(plan),
      world_(world),
      servers_(servers),
      optimizer_(plan.optimizer, plan.layout, world.memory, nullptr, world.device),
      versions_(world.units.size(), plan.first_step) {}

void LateUpdates::start() {
  optimizer_.start(plan_);
  servers_.open_without_values();
}

void LateUpdates::bring_up_to_date(UnitId unit) {
  const std::uint64_t version = servers_.step();
  if (versions_[unit] == version || !plan_.layout.units[unit].trained) return;
  if (optimizer_.whole_step()) {
    for (const UnitId each : plan_.layout.trained()) servers_.link().wait(each, version);
    optimizer_.update_all({version - 1}, world_.units);
    versions_.assign(versions_.size(), version);
  } else {
    servers_.link().wait(unit, version);
    optimizer_.update(unit, {version - 1}, world_.units[unit]);
    versions_[unit] = version;
  }
}

std::vector<optim::StatePart> LateUpdates::state() {
  if (plan_.data_rank.value != 0) return {};
  return optimizer_.save(0, 1, [this](UnitId unit, Range) { return ConstElements(world_.units[unit].parameters); });
}

void LateUpdates::predict(Prediction& sum) const {
  predict_state(plan_, 1, sum);
  sum.server_memory = memory_formula(plan_, {.parameters = 0, .gradients = plan_.layout.owners, .optimizer = 0});
}

/// An update writes into a second buffer, which frozen units do not need. If the step has to be whole, the mean of all
/// units waits for its verdict.
void ServerUpdates::predict(Prediction& sum) const {
  const std::size_t servers = plan_.layout.owners;
  const OptimizerPlan& plan = plan_.optimizer;
  const std::uint64_t values = plan_.layout.trained_elements() * size_bytes(plan_.layout.parameter_type) / servers;
  const bool clips = plan.clip_norm > 0 && !plan_.consistency.each_push_updates;
  const bool whole = plan_.layout.pushes > 1 || clips || plan.loss_scaler.active() || plan.rule->layerwise();
  sum.server_memory = memory_formula(plan_, {servers, whole ? servers : 0, servers});
  sum.server_memory[Category::parameters] += values;
  const bool apart = plan_.layout.parameter_type != DType::f32 && plan.master_copy;
  if (plan_.job.server_device == "cuda" && !apart) sum.server_memory[Category::parameters] += values;
  if (plan_.remedy.keeps_given()) sum.server_memory[Category::optimizer] += plan_.workers * values;
}

}  // namespace psring::worker
