#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

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

const char* not_finite_help(const Layout& layout) {
  return layout.tables.empty() ? "a lower --lr or --clip-norm may help"
                               : "a lower --table-lr, --lr or --clip-norm may help";
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
    const std::string name =
        unit == kNoUnit ? fmt::format("layer {}", layer) : fmt::format("unit '{}'", plan.layout.units[unit].name);
    const char* const parameters = unit == kNoUnit                        ? ""
                                   : finite(world.units[unit].parameters) ? " (its parameters are)"
                                                                          : " (nor are its parameters)";
    fail(ErrorKind::data, "step {}: the output of {} is not finite{}; {}", step.index, name, parameters,
         not_finite_help(plan.layout));
  }
  fail(ErrorKind::data, "step {}: the loss is not finite, though all outputs are", step.index);
}

}  // namespace psring::worker
