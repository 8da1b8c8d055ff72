#include <psring/common/proc/job.h>
#include <psring/worker/exchange/local_gradients.h>

namespace psring::worker {

LocalGradients::LocalGradients(const Plan& plan, const World& world)
    : plan_(plan),
      world_(world),
      at_owner_(plan.job.accumulate_at == "owner"),
      gradients_(plan, world, WholeUnits::Values::gradients) {
  for (UnitBuffers& unit : world.units) unit.each_micro_alone = at_owner_;
  const std::size_t micros = at_owner_ ? plan.job.accumulate : 1;
  if (plan.job.virtual_workers == 1 && micros == 1) return;
  sums_.resize(micros);
  for (auto& sums : sums_)
    for (UnitId unit = 0; unit < world.units.size(); ++unit)
      sums.push_back(world.buffer(plan.layout.trained_elements(unit) * sizeof(float), Category::gradients));
}

void LocalGradients::ready(UnitId unit, Micro micro, const Landed& landed) {
  if (!micro.last && !at_owner_) return;
  if (!sums_.empty()) add_up(unit, micro);
  if (micro.last && micro.last_worker) landed({unit, unit + 1});
}

void LocalGradients::add_up(UnitId unit, Micro micro) {
  const ConstElements mine = world_.units[unit].gradients;
  const std::size_t index = at_owner_ ? micro.index : 0;
  const Elements total = sum(index, unit);
  if (micro.virtual_worker == 0)
    convert(mine, total);
  else
    add(total, mine);
  if (!micro.last_worker) return;
  multiply(total, 1.0F / static_cast<float>(plan_.job.virtual_workers));
  round_to(mine.type(), total);
  if (index == 0) return;
  const Elements first = sum(0, unit);
  add(first, total);
  round_to(mine.type(), first);
}

void LocalGradients::predict(Prediction& sum) const {
  sum.worker_memory[Category::gradients] +=
      gradients_.all().size_bytes() + sums_.size() * plan_.layout.trained_elements() * sizeof(float);
}

}  // namespace psring::worker
