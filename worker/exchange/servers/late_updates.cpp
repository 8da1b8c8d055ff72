#include <psring/worker/exchange/memory_formula.h>
#include <psring/worker/exchange/servers/late_updates.h>

namespace psring::worker {

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
    const Events::Span span(world_.events, {.name = "update"});
    optimizer_.update_all({version - 1}, world_.units);
    versions_.assign(versions_.size(), version);
  } else {
    servers_.link().wait(unit, version);
    const Events::Span span(world_.events, {.name = "update", .unit = static_cast<std::uint32_t>(unit)});
    optimizer_.update(unit, {version - 1}, world_.units[unit]);
    versions_[unit] = version;
  }
}

std::vector<optim::StatePart> LateUpdates::state() {
  if (plan_.data_rank.value != 0) return {};
  return optimizer_.save(0, 1, [this](UnitId unit, Range) { return ConstElements(world_.units[unit].parameters); });
}

void LateUpdates::predict(Prediction& sum) const {
  add_optimizer_state(plan_, 1, sum);
  set_server_memory(
      plan_, [this](OwnedElements owned) { return memory_formula(plan_, owned, {.parameters = 0, .optimizer = 0}); },
      sum);
}

}  // namespace psring::worker
