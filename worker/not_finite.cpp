#include <algorithm>
#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/worker/not_finite.h>

namespace psring::worker {

void SkipWatch::look(std::uint64_t step, const optim::LossScaler& scaler) {
  if (!scaler.active() || step < next_) return;
  next_ = step + 1;
  skipped_.push_back(scaler.skipped());
  if (skipped_.size() <= kSteps) return;
  const std::uint64_t skipped = skipped_.back() - skipped_.front();
  skipped_.pop_front();
  if (skipped > kMostSkipped)
    fail(ErrorKind::data,
         "step {}: {} of the last {} steps were skipped, as their gradients were not finite; the loss scale is {:g}: a "
         "lower --lr, --clip-norm, a lower --loss-scale or --precision bf16 may help",
         step, skipped, kSteps, scaler.scale());
}

void fail_not_finite(Step step, const Plan& plan, const World& world, const FlatModel& flat, const Network& network) {
  const auto finite = [](ConstElements values) {
    bool all = true;
    const OnHost here(values);
    for_each_widened(here.values(), [&](std::span<const float> part, Range) {
      all = all && std::all_of(part.begin(), part.end(), [](float v) { return std::isfinite(v); });
    });
    return all;
  };
  for (std::size_t layer = 0; layer < flat.layers(); ++layer) {
    if (finite(network.output_of(layer))) continue;
    const UnitId unit = flat.unit_of(layer);
    if (unit == kNoUnit) fail(ErrorKind::data, "step {}: the output of layer {} is not finite", step.index, layer);
    fail(ErrorKind::data, "step {}: the output of unit '{}' is not finite ({}); a lower --lr or --clip-norm may help",
         step.index, plan.layout.units[unit].name,
         finite(world.units[unit].parameters) ? "its parameters are" : "nor are its parameters");
  }
  fail(ErrorKind::data, "step {}: the loss is not finite, though all outputs are", step.index);
}

}  // namespace psring::worker
