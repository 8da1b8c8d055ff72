#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/local_optimizer.h>

namespace psring::worker {

std::vector<optim::StatePart> LocalOptimizer::save(std::size_t rank, std::size_t ranks,
                                                   const std::function<ConstElements(UnitId, Range)>& parameters) {
  std::vector<optim::StatePart> parts;
  saved_.clear();
  decoded_.clear();
  for (UnitId unit = 0; unit < state_.size(); ++unit) {
    const UnitLayout& layout = layout_.units[unit];
    const Range range = Partition(layout.elements, ranks).range(rank);
    const Range held = owned(unit);
    check(held.contains(range), "rank {} does not have what it saves", rank);
    const auto part = [&](Elements whole) { return kept(whole.subspan(range.begin - held.begin, range.size())); };
    const bool copied = layout.trained && !masters_.empty();
    parts.push_back({&layout, range, optim::kValues, copied ? part(master(unit)) : kept(parameters(unit, range))});
    if (!layout.trained) continue;
    for (std::size_t slot = 0; slot < plan_.rule->slots(); ++slot)
      parts.push_back({&layout, range, optim::slot_array(slot),
                       kept_state(unit, slot, {range.begin - held.begin, range.end - held.begin})});
  }
  return parts;
}

/// A slot's values in f32, until the next call of save.
ConstElements LocalOptimizer::kept_state(UnitId unit, std::size_t slot, Range range) {
  if (state_[unit].in_f32()) return kept(state_[unit].slot(slot, range));
  std::vector<float>& values = decoded_.emplace_back(range.size());
  state_[unit].read(slot, range, values);
  return ConstElements(std::span<const float>(values));
}

/// A copy that the host can read, until the next call of save.
ConstElements LocalOptimizer::kept(ConstElements values) {
  return values.processor() == nullptr ? values : saved_.emplace_back(values).values();
}

}  // namespace psring::worker
