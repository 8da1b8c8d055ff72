#include <psring/common/device/device.h>
#include <psring/worker/exchange/local_optimizer.h>
#include <psring/worker/exchange/memory_formula.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/workers/shard_groups.h>

namespace psring::worker {
namespace {

/// This process applies the optimizer: to everything, or to the range that it owns.
class LocalUpdates final : public Updates {
 public:
  LocalUpdates(const Plan& plan, const World& world, Parameters& parameters, Gradients& gradients,
               const ShardGroups* groups)
      : plan_(plan),
        world_(world),
        parameters_(parameters),
        gradients_(gradients),
        groups_(groups),
        optimizer_(plan.optimizer, plan.layout, world.memory, groups != nullptr ? &groups->owners() : nullptr,
                   world.device),
        as_they_land_(groups == nullptr && !optimizer_.whole_step() && !plan.survives_losses) {}

  void start() override { optimizer_.start(plan_); }
  /// Updates the units at once, unless the step has to be whole.
  void landed(Range units, Step step) override;
  void finish(Step step) override;
  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }
  std::vector<optim::StatePart> state() override;
  std::optional<std::vector<optim::StatePart>> whole_state() override;
  void predict(Prediction& sum) const override {
    add_optimizer_state(plan_, groups_ != nullptr ? plan_.layout.owners : 1, sum);
  }

 private:
  UnitBuffers owned(UnitId unit) { return {parameters_.owned(unit), gradients_.owned(unit)}; }
  std::vector<optim::StatePart> save(std::size_t part, std::size_t parts);

  const Plan& plan_;
  const World& world_;
  Parameters& parameters_;
  Gradients& gradients_;
  const ShardGroups* const groups_;
  LocalOptimizer optimizer_;
  const bool as_they_land_;
};

void LocalUpdates::landed(Range units, Step step) {
  if (!as_they_land_) return;
  for (UnitId unit = units.begin; unit < units.end; ++unit) {
    const Events::Span span(world_.events, {.name = "update", .unit = static_cast<std::uint32_t>(unit)});
    optimizer_.update(unit, step, owned(unit));
  }
}

void LocalUpdates::finish(Step step) {
  if (as_they_land_) return;
  // A device's queue goes on after a reduction was given up: parameters must not be updated with its result.
  if (plan_.survives_losses && world_.device != nullptr) world_.device->wait(world_.device->mark());
  const Events::Span span(world_.events, {.name = "update"});
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
  if (groups_ == nullptr) return save(plan_.data_rank.value, plan_.workers);  // every worker has all of it
  if (!groups_->saves()) return {};
  return save(groups_->owners().rank(), groups_->owners().size());
}

std::optional<std::vector<optim::StatePart>> LocalUpdates::whole_state() {
  if (groups_ != nullptr || !plan_.survives_losses) return std::nullopt;
  return save(0, 1);
}

}  // namespace

std::unique_ptr<Updates> make_local_updates(const Plan& plan, const World& world, Parameters& parameters,
                                            Gradients& gradients, const ShardGroups* groups) {
  return std::make_unique<LocalUpdates>(plan, world, parameters, gradients, groups);
}

}  // namespace psring::worker
