#include <psring/worker/exchange/local_optimizer.h>

namespace psring::worker {

using optim::ExactSum;

/// Directions overwrite the gradients; the sums of all units travel together. `owned` holds the units of the range.
void LocalOptimizer::update_layerwise(const optim::Update& update, Range units, std::span<const UnitBuffers> owned) {
  const auto of = [&](UnitId unit) { return owned[unit - units.begin]; };
  std::vector<UnitId> trained;
  for (const UnitId unit : trained_)
    if (units.contains({unit, unit + 1})) trained.push_back(unit);
  std::vector<ExactSum> flat;
  for (const UnitId unit : trained) {
    apply(update, unit, of(unit));
    for (const optim::TensorSums& sums : layerwise_sums(unit, of(unit)))
      flat.insert(flat.end(), {sums.parameters, sums.direction});
  }
  merge(flat, owners_);
  std::size_t next = 0;
  for (const UnitId unit : trained) {
    const auto& tensors = layout_.units[unit].tensors;
    std::vector<optim::TensorSums> sums(tensors.size());
    for (optim::TensorSums& each : sums) {
      each.parameters = flat[next++];
      each.direction = flat[next++];
    }
    scale_layerwise(update.lr, unit, optim::trust_ratios(sums), of(unit));
  }
}

std::vector<optim::TensorSums> LocalOptimizer::layerwise_sums(UnitId unit, UnitBuffers of) {
  const auto& tensors = layout_.units[unit].tensors;
  const Elements w = weights(unit, of);
  if (applier_) return optim::layerwise_sums(*applier_, tensors, owned(unit), w, of.gradients);
  return optim::layerwise_sums(tensors, owned(unit), w.as<float>(), of.gradients.as<float>());
}

/// The direction lies where the gradient was.
void LocalOptimizer::scale_layerwise(float lr, UnitId unit, std::span<const float> ratios, UnitBuffers of) {
  const auto& tensors = layout_.units[unit].tensors;
  if (applier_)
    return optim::scale_layerwise(*applier_, lr, tensors, owned(unit), ratios, of.gradients, master(unit),
                                  of.parameters);
  const std::span<float> w = weights(unit, of).as<float>();
  optim::scale_layerwise(lr, tensors, owned(unit), ratios, w, of.gradients.as<float>(), w);
  if (!masters_.empty()) narrow(w, of.parameters);
}

}  // namespace psring::worker
