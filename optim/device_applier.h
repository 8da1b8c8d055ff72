#pragma once

#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/device/device.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/updater.h>

namespace psring::optim {

/// As MixedRange, in a device's memory. Empty: master, and slots that the rule has not.
struct DeviceRange {
  ConstElements parameters;
  ConstElements gradient;
  Elements master;
  Elements slot[Optimizer::kMaxSlots];
  Elements out;
};

/// Updates in a device's memory, with the host's arithmetic (formula.h): the same bits.
class DeviceApplier {
 public:
  virtual ~DeviceApplier() = default;

  /// As optim::apply (mixed.h); queued.
  virtual void apply(const Formula& formula, const DeviceRange& range) = 0;
  /// block_square_sum (norm.h) of each block of kCut elements, the last of each vector perhaps shorter, one vector
  /// after the other; waits for them. They stay until the next call.
  virtual std::span<const double> square_sums(std::span<const ConstElements> vectors) = 0;
};

/// add_square_sum (mixed.h) of all these, which lie where `applier` updates; null: on the host. The bits are the same.
void add_square_sums(std::span<const ConstElements> vectors, ExactSum& sum, DeviceApplier* applier);

/// layerwise_sums and scale_layerwise (updater.h) of elements in f32 that lie there; `out` may be narrower, then `kept`
/// gets what it is rounded from. The bits are the host's, but that padding stays what it is.
std::vector<TensorSums> layerwise_sums(DeviceApplier& applier, std::span<const TensorLayout> tensors, Range range,
                                       ConstElements parameters, ConstElements direction);
void scale_layerwise(DeviceApplier& applier, float lr, std::span<const TensorLayout> tensors, Range range,
                     std::span<const float> ratios, ConstElements direction, Elements kept, Elements out);

/// REQUIRES: the device outlives it.
std::unique_ptr<DeviceApplier> make_device_applier(Device& device);

}  // namespace psring::optim
