#include <vector>

#include <psring/optim/device_applier.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/mixed.h>

namespace psring::optim {

void add_square_sums(std::span<const ConstElements> vectors, ExactSum& sum, DeviceApplier* applier) {
  if (applier == nullptr)
    for (const ConstElements values : vectors) add_square_sum(values, sum);
  else
    for (const double block : applier->square_sums(vectors)) sum.add(block);
}

/// Each block belongs to one tensor, because tensors start at blocks and padding is zero.
std::vector<TensorSums> layerwise_sums(DeviceApplier& applier, std::span<const TensorLayout> tensors, Range range,
                                       ConstElements parameters, ConstElements direction) {
  const ConstElements vectors[] = {parameters, direction};
  const std::span<const double> blocks = applier.square_sums(vectors);
  const std::span<const double> parameter_blocks = blocks.first(blocks.size() / 2);
  const std::span<const double> direction_blocks = blocks.subspan(blocks.size() / 2);
  std::vector<TensorSums> sums(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Range part = elements_of(tensors[i]).intersect(range);
    if (part.empty()) continue;
    for (std::size_t at = part.begin; at < part.end; at += kCut) {
      sums[i].parameters.add(parameter_blocks[(at - range.begin) / kCut]);
      sums[i].direction.add(direction_blocks[(at - range.begin) / kCut]);
    }
  }
  return sums;
}

void scale_layerwise(DeviceApplier& applier, float lr, std::span<const TensorLayout> tensors, Range range,
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
