#include <vector>

#include <psring/optim/device_applier.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/mixed.h>

namespace psring::optim {

void add_square_sum(ConstElements values, ExactSum& sum, DeviceApplier* applier) {
  if (applier == nullptr) return add_square_sum(values, sum);
  std::vector<double> blocks((values.size() + kCut - 1) / kCut);
  applier->square_sums(values, blocks);
  for (const double block : blocks) sum.add(block);
}

/// Tensors start at blocks, and padding is zero: a block is one tensor's.
std::vector<TensorSums> layerwise_sums(DeviceApplier& applier, std::span<const TensorSlot> tensors, Range range,
                                       ConstElements parameters, ConstElements direction) {
  std::vector<double> of_parameters((range.size() + kCut - 1) / kCut);
  std::vector<double> of_direction(of_parameters.size());
  applier.square_sums(parameters, of_parameters);
  applier.square_sums(direction, of_direction);
  std::vector<TensorSums> sums(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Range part = elements_of(tensors[i]).intersect(range);
    if (part.empty()) continue;
    for (std::size_t at = part.begin; at < part.end; at += kCut) {
      sums[i].parameters.add(of_parameters[(at - range.begin) / kCut]);
      sums[i].direction.add(of_direction[(at - range.begin) / kCut]);
    }
  }
  return sums;
}

void scale_layerwise(DeviceApplier& applier, float lr, std::span<const TensorSlot> tensors, Range range,
                     std::span<const float> ratios, ConstElements direction, Elements kept, Elements out) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Range part = elements_of(tensors[i]).intersect(range);
    if (part.empty()) continue;
    const Range local{part.begin - range.begin, part.end - range.begin};
    const Elements to = out.part(local);
    applier.apply(Formula{.rule = Rule::sgd, .lr = lr * ratios[i]},
                  {.parameters = to,
                   .gradient = direction.part(local),
                   .master = kept.empty() ? Elements() : kept.part(local),
                   .out = to});
  }
}

}  // namespace psring::optim
